// Package hub takes the place of Open Cluster Management's placement controller, which every placement spec starts: the
// hub has one already.
package hub

import (
	"context"

	"github.com/openshift/library-go/pkg/controller/controllercmd"
)

// RunControllerManager starts nothing.
func RunControllerManager(ctx context.Context, _ *controllercmd.ControllerContext) error {
	<-ctx.Done()
	return nil
}
