// Package specs imports what the placement specs of Open Cluster Management need, so that go.mod has it.
package specs

import (
	_ "github.com/openshift/library-go/pkg/controller/controllercmd"
	_ "github.com/openshift/library-go/pkg/operator/events"
	_ "open-cluster-management.io/ocm/pkg/placement/helpers/testing"
	_ "open-cluster-management.io/sdk-go/pkg/patcher"
)
