// Takes the place of the suite of Open Cluster Management's placement specs, which starts an API server of its own: the
// specs run on the hub of KUBECONFIG.
package placement

import (
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
)

// As the specs have them, in seconds.
const (
	eventuallyTimeout  = 30
	eventuallyInterval = 1
)

var (
	restConfig    *rest.Config
	kubeClient    kubernetes.Interface
	clusterClient clusterclient.Interface
)

func TestPlacement(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Placement")
}

var _ = ginkgo.BeforeSuite(func() {
	var err error
	restConfig, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	kubeClient, err = kubernetes.NewForConfig(restConfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	clusterClient, err = clusterclient.NewForConfig(restConfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
})
