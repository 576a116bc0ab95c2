// Command controller runs Knative Serving's own reconcilers as its release does, but without a port for probes:
// the release's is fixed, 8080 on every address, where engines and other clusters of this machine listen.
package main

import (
	"knative.dev/pkg/injection"
	"knative.dev/pkg/injection/sharedmain"
	"knative.dev/pkg/signals"
	"knative.dev/serving/pkg/reconciler/configuration"
	"knative.dev/serving/pkg/reconciler/gc"
	"knative.dev/serving/pkg/reconciler/labeler"
	"knative.dev/serving/pkg/reconciler/revision"
	"knative.dev/serving/pkg/reconciler/route"
	"knative.dev/serving/pkg/reconciler/serverlessservice"
	"knative.dev/serving/pkg/reconciler/service"
)

func main() {
	ctx := sharedmain.WithHealthProbesDisabled(sharedmain.WithHADisabled(signals.NewContext()))
	sharedmain.MainWithConfig(ctx, "controller", injection.ParseAndGetRESTConfigOrDie(),
		configuration.NewController,
		labeler.NewController,
		revision.NewController,
		route.NewController,
		serverlessservice.NewController,
		service.NewController,
		gc.NewController,
	)
}
