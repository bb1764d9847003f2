//go:build binaries

// Package older_kubectl names an older kubectl that the tests run, so that go.mod and go.sum pin all it is built from.
package older_kubectl

import _ "k8s.io/kubernetes/cmd/kubectl"
