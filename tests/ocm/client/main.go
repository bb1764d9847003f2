// A client of Open Cluster Management's API, made of its generated clients, informers, listers and helpers. It prints what it
// asked of a hub and what came back, one line of JSON for each step, so that two hubs can be compared.
//
//	client requests      every request for every kind; no controller may run
//	client cases FILE    writes of malformed and unusual objects, and of users without rights; no controller may run
//	client decisions     follows the decisions of Placements; the controllers must run
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
)

// hub is the way to a hub.
type hub struct {
	config   *rest.Config
	core     kubernetes.Interface
	clusters clusterclient.Interface
	dynamic  dynamic.Interface
}

func main() {
	log.SetFlags(0)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS, config.Burst = 200, 400
	hub, ctx, out := connect(config), context.Background(), newTranscript(os.Stdout)
	switch {
	case len(os.Args) == 2 && os.Args[1] == "requests":
		requests(ctx, hub, out)
	case len(os.Args) == 3 && os.Args[1] == "cases":
		cases(ctx, hub, out, os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "decisions":
		decisions(ctx, hub, out)
	default:
		log.Fatal("usage: client requests | cases FILE | decisions")
	}
}

func connect(config *rest.Config) hub {
	core, err := kubernetes.NewForConfig(config)
	must(err)
	clusters, err := clusterclient.NewForConfig(config)
	must(err)
	anything, err := dynamic.NewForConfig(config)
	must(err)
	return hub{config, core, clusters, anything}
}

func must(err error) {
	if err != nil {
		log.Fatal(fmt.Errorf("client: %w", err))
	}
}
