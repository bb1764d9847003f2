//go:build binaries

// Package helm names Helm, so that go.mod and go.sum pin all it is built from.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
