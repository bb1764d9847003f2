// A hub of Open Cluster Management on an API server that has its CustomResourceDefinitions: the admission webhook, and the
// controllers of placement, cluster sets, bindings and taints. What our own hub does is compared with this one.
package main

import (
	"context"
	"flag"
	"log"
	"time"

	"github.com/openshift/library-go/pkg/controller/controllercmd"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ocmfeature "open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/features"
	placement "open-cluster-management.io/ocm/pkg/placement/controllers"
	"open-cluster-management.io/ocm/pkg/registration/hub/managedclusterset"
	"open-cluster-management.io/ocm/pkg/registration/hub/managedclustersetbinding"
	"open-cluster-management.io/ocm/pkg/registration/hub/taint"
	webhookv1 "open-cluster-management.io/ocm/pkg/registration/webhook/v1"
	webhookv1beta2 "open-cluster-management.io/ocm/pkg/registration/webhook/v1beta2"
	"open-cluster-management.io/sdk-go/pkg/basecontroller/factory"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func main() {
	port := flag.Int("webhook-port", 0, "port of the admission webhook")
	certificates := flag.String("certificates", "", "folder with tls.crt and tls.key of the webhook")
	controllers := flag.Bool("controllers", true, "whether to run controllers beside the webhook")
	flag.Parse() // controller-runtime adds --kubeconfig

	must(features.HubMutableFeatureGate.Add(ocmfeature.DefaultHubRegistrationFeatureGates))
	config := ctrl.GetConfigOrDie()
	ctx := ctrl.SetupSignalHandler()
	if *controllers {
		go runControllers(ctx, config)
		go func() {
			must(placement.RunControllerManager(ctx, &controllercmd.ControllerContext{KubeConfig: config}))
		}()
	}
	serveWebhook(ctx, config, *port, *certificates)
}

func runControllers(ctx context.Context, config *rest.Config) {
	client, err := clusterclient.NewForConfig(config)
	must(err)
	informers := clusterinformers.NewSharedInformerFactory(client, 10*time.Minute)
	clusters := informers.Cluster().V1().ManagedClusters()
	sets := informers.Cluster().V1beta2().ManagedClusterSets()
	bindings := informers.Cluster().V1beta2().ManagedClusterSetBindings()
	controllers := []factory.Controller{
		managedclusterset.NewManagedClusterSetController(client, clusters, sets),
		managedclusterset.NewDefaultManagedClusterSetController(client.ClusterV1beta2(), sets),
		managedclusterset.NewGlobalManagedClusterSetController(client.ClusterV1beta2(), sets),
		managedclustersetbinding.NewManagedClusterSetBindingController(client, sets, bindings),
		taint.NewTaintController(client, clusters),
	}
	informers.Start(ctx.Done())
	for _, controller := range controllers {
		go controller.Run(ctx, 1)
	}
}

func serveWebhook(ctx context.Context, config *rest.Config, port int, certificates string) {
	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	must(clusterv1.Install(scheme))
	must(webhookv1beta2.Install(scheme))
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:        scheme,
		Metrics:       server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificates}),
	})
	must(err)
	must((&webhookv1.ManagedClusterWebhook{}).Init(manager))
	must((&webhookv1beta2.ManagedClusterSetBindingWebhook{}).Init(manager))
	must(manager.Start(ctx))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
