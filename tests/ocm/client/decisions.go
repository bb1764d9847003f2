package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	listersv1beta1 "open-cluster-management.io/api/client/cluster/listers/cluster/v1beta1"
	listersv1beta2 "open-cluster-management.io/api/client/cluster/listers/cluster/v1beta2"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	sdkv1beta1 "open-cluster-management.io/sdk-go/pkg/apis/cluster/v1beta1"
	sdkv1beta2 "open-cluster-management.io/sdk-go/pkg/apis/cluster/v1beta2"
)

const fleet = "decisions" // the namespace

// decisionGetter and bindingGetter are listers as the helpers want them.
type decisionGetter struct {
	lister listersv1beta1.PlacementDecisionLister
}

func (g decisionGetter) List(selector labels.Selector, namespace string) ([]*clusterv1beta1.PlacementDecision, error) {
	return g.lister.PlacementDecisions(namespace).List(selector)
}

type bindingGetter struct {
	lister listersv1beta2.ManagedClusterSetBindingLister
}

func (g bindingGetter) List(namespace string, selector labels.Selector) ([]*clusterv1beta2.ManagedClusterSetBinding, error) {
	return g.lister.ManagedClusterSetBindings(namespace).List(selector)
}

// story is a Placement, and a tracker that follows its decisions.
type story struct {
	hub       hub
	out       *transcript
	ctx       context.Context
	informers clusterinformers.SharedInformerFactory
	placement *clusterv1beta1.Placement
	tracker   *sdkv1beta1.PlacementDecisionClustersTracker
}

func decisions(ctx context.Context, hub hub, out *transcript) {
	told := &story{hub: hub, out: out, ctx: ctx, informers: clusterinformers.NewSharedInformerFactory(hub.clusters, 0)}
	informers := told.informers.Cluster()
	getter := decisionGetter{informers.V1beta1().PlacementDecisions().Lister()}
	informers.V1().ManagedClusters().Informer()
	informers.V1beta2().ManagedClusterSets().Informer()
	informers.V1beta2().ManagedClusterSetBindings().Informer()
	told.informers.Start(ctx.Done())
	told.informers.WaitForCacheSync(ctx.Done())

	told.prepare()
	told.helpers()
	clusters := int32(3)
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: fleet}}
	placement.Spec.NumberOfClusters = &clusters
	placement.Spec.ClusterSets = []string{"eu", "asia"}
	made, err := hub.clusters.ClusterV1beta1().Placements(fleet).Create(ctx, placement, metav1.CreateOptions{})
	must(err)
	told.placement = made
	told.tracker = sdkv1beta1.NewPlacementDecisionClustersTracker(made, getter, sets.New[string]())
	told.changes("a placement is decided", "c1", "c2", "c3")
	told.reschedule()
	told.group()
	told.end()
}

// prepare makes two sets, their bindings, and six clusters that are available.
func (s *story) prepare() {
	clusters := s.hub.clusters
	_, err := s.hub.core.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet}}, metav1.CreateOptions{})
	must(err)
	eu := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "eu"}}
	asia := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "asia"}}
	asia.Spec.ClusterSelector.SelectorType = clusterv1beta2.LabelSelector
	asia.Spec.ClusterSelector.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "asia"}}
	for _, set := range []*clusterv1beta2.ManagedClusterSet{eu, asia} {
		binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: set.Name}}
		binding.Spec.ClusterSet = set.Name
		_, err = clusters.ClusterV1beta2().ManagedClusterSetBindings(fleet).Create(s.ctx, binding, metav1.CreateOptions{})
		must(err)
		s.bound(set.Name, metav1.ConditionFalse)
		_, err = clusters.ClusterV1beta2().ManagedClusterSets().Create(s.ctx, set, metav1.CreateOptions{})
		must(err)
		s.bound(set.Name, metav1.ConditionTrue)
	}
	for number := 1; number <= 6; number++ {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", number)}}
		cluster.Labels = map[string]string{clusterv1beta2.ClusterSetLabel: "eu"}
		if number > 4 {
			cluster.Labels = map[string]string{"region": "asia"}
		}
		_, err = clusters.ClusterV1().ManagedClusters().Create(s.ctx, cluster, metav1.CreateOptions{})
		must(err)
		s.tainted(cluster.Name, clusterv1.ManagedClusterTaintUnreachable)
		s.available(cluster.Name, metav1.ConditionTrue)
		s.tainted(cluster.Name)
	}
}

func (s *story) helpers() {
	informers := s.informers.Cluster()
	clusters, sets := informers.V1().ManagedClusters().Lister(), informers.V1beta2().ManagedClusterSets().Lister()
	for name, members := range map[string]int{"asia": 2, "default": 2, "eu": 4, "global": 6} {
		var set *clusterv1beta2.ManagedClusterSet
		eventually(func() bool {
			var err error
			set, err = sets.Get(name)
			return err == nil && meta.IsStatusConditionFalse(set.Status.Conditions, clusterv1beta2.ManagedClusterSetConditionEmpty)
		})
		found, err := sdkv1beta2.GetClustersFromClusterSet(set, clusters)
		must(err)
		if len(found) != members {
			must(fmt.Errorf("the set %s has %d members", name, len(found)))
		}
	}
	all, err := sets.List(labels.Everything())
	must(err)
	slices.SortFunc(all, func(a, b *clusterv1beta2.ManagedClusterSet) int { return strings.Compare(a.Name, b.Name) })
	for _, set := range all {
		eventually(func() bool {
			found, err := sets.Get(set.Name)
			must(err)
			condition := meta.FindStatusCondition(found.Status.Conditions, clusterv1beta2.ManagedClusterSetConditionEmpty)
			members, err := sdkv1beta2.GetClustersFromClusterSet(found, clusters)
			must(err)
			set = found
			return condition != nil && condition.Message == fmt.Sprintf("%d ManagedClusters selected", len(members))
		})
		s.out.record("the set "+set.Name, map[string]any{"spec": set.Spec, "status": set.Status}, nil)
	}
	cluster, err := clusters.Get("c5")
	must(err)
	of, err := sdkv1beta2.GetClusterSetsOfCluster(cluster, sets)
	must(err)
	found := []string{}
	for _, set := range of {
		found = append(found, set.Name)
	}
	slices.Sort(found)
	s.out.record("the sets of a cluster", found, nil)
	bindings, err := sdkv1beta2.GetBoundManagedClusterSetBindings(fleet, bindingGetter{informers.V1beta2().ManagedClusterSetBindings().Lister()})
	must(err)
	s.out.record("bound sets", len(bindings), nil)
	cluster, err = s.hub.clusters.ClusterV1().ManagedClusters().Get(s.ctx, "c1", metav1.GetOptions{})
	must(err)
	s.out.record("an available cluster", map[string]any{"labels": cluster.Labels, "spec": cluster.Spec}, nil)
}

func (s *story) reschedule() {
	s.available("c1", metav1.ConditionFalse)
	s.tainted("c1", clusterv1.ManagedClusterTaintUnavailable)
	s.changes("a cluster becomes unavailable", "c2", "c3", "c4")
	s.available("c1", metav1.ConditionUnknown)
	s.tainted("c1", clusterv1.ManagedClusterTaintUnreachable)
	s.patch(`{"spec": {"tolerations": [{"key": "cluster.open-cluster-management.io/unreachable", "operator": "Exists"}], "prioritizerPolicy": {"mode": "Exact"}}}`)
	s.changes("its taint is tolerated", "c1", "c2", "c3")
	s.available("c1", metav1.ConditionTrue)
	s.tainted("c1")
	for name, value := range map[string]int32{"c2": -50, "c3": 10, "c4": 20, "c5": 30, "c6": -100} {
		_, err := s.hub.core.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(err)
		scores := s.hub.clusters.ClusterV1alpha1().AddOnPlacementScores(name)
		score, err := scores.Create(s.ctx, &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Name: "cost"}}, metav1.CreateOptions{})
		must(err)
		score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "spot", Value: value}}
		_, err = scores.UpdateStatus(s.ctx, score, metav1.UpdateOptions{})
		must(err)
	}
	s.patch(`{"spec": {"prioritizerPolicy": {"mode": "Exact", "configurations": [{"scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "cost", "scoreName": "spot"}}}]}}}`)
	s.changes("by scores", "c3", "c4", "c5")
	s.patch(`{"spec": {"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": ["managedCluster.metadata.name != 'c4'"]}}}]}}`)
	s.changes("by an expression", "c1", "c3", "c5")
	must(s.hub.clusters.ClusterV1beta2().ManagedClusterSetBindings(fleet).Delete(s.ctx, "asia", metav1.DeleteOptions{}))
	s.changes("a set is no longer bound", "c1", "c2", "c3")
	s.patch(`{"spec": {"clusterSets": ["asia"]}}`)
	s.changes("no set is left")
	s.patch(`{"spec": {"clusterSets": null, "predicates": null, "prioritizerPolicy": null, "tolerations": null, "numberOfClusters": 5}}`)
	s.changes("fewer clusters than wanted", "c1", "c2", "c3", "c4")
}

func (s *story) group() {
	strategy := clusterv1beta1.GroupStrategy{
		ClustersPerDecisionGroup: intstr.FromInt32(2),
		DecisionGroups: []clusterv1beta1.DecisionGroup{{
			GroupName: "canary",
			ClusterSelector: clusterv1beta1.GroupClusterSelector{
				LabelSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "canary", Operator: metav1.LabelSelectorOpExists},
				}},
			},
		}},
	}
	clusters := s.hub.clusters.ClusterV1().ManagedClusters()
	_, err := clusters.Patch(s.ctx, "c2", types.MergePatchType, []byte(`{"metadata": {"labels": {"canary": "true"}}}`), metav1.PatchOptions{})
	must(err)
	placements := s.hub.clusters.ClusterV1beta1().Placements(fleet)
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		placement, err := placements.Get(s.ctx, "web", metav1.GetOptions{})
		must(err)
		placement.Spec.DecisionStrategy.GroupStrategy = strategy
		placement.Spec.NumberOfClusters = nil
		_, err = placements.Update(s.ctx, placement, metav1.UpdateOptions{})
		return err
	}))
	s.regrouped("in groups", 3, "c1", "c2", "c3", "c4")
	must(clusters.Delete(s.ctx, "c2", metav1.DeleteOptions{}))
	s.regrouped("the only cluster of a group is deleted", 2, "c1", "c3", "c4")
}

func (s *story) end() {
	must(s.hub.clusters.ClusterV1beta1().Placements(fleet).Delete(s.ctx, "web", metav1.DeleteOptions{}))
	added, deleted := sets.New[string](), sets.New[string]()
	eventually(func() bool {
		more, fewer, err := s.tracker.GetClusterChanges()
		must(err)
		added, deleted = added.Union(more), deleted.Union(fewer)
		return len(s.tracker.ExistingClusterGroupsBesides()) == 0
	})
	s.out.record("the placement is deleted", map[string]any{"added": sets.List(added), "deleted": sets.List(deleted)}, nil)
}

// changes waits until the tracker has exactly these clusters in one group and the status says so, and records it.
func (s *story) changes(step string, expected ...string) {
	s.regrouped(step, 1, expected...)
}

func (s *story) regrouped(step string, number int, expected ...string) {
	before := s.tracker.ExistingClusterGroupsBesides().GetClusters()
	var placement *clusterv1beta1.Placement
	eventually(func() bool {
		// A cluster that goes from one page to another may be on neither for a moment: what counts is before and after.
		_, _, err := s.tracker.GetClusterChanges()
		must(err)
		placement, err = s.hub.clusters.ClusterV1beta1().Placements(fleet).Get(s.ctx, "web", metav1.GetOptions{})
		must(err)
		groups := s.tracker.ExistingClusterGroupsBesides()
		for _, group := range placement.Status.DecisionGroups {
			key := sdkv1beta1.GroupKey{GroupName: group.DecisionGroupName, GroupIndex: group.DecisionGroupIndex}
			if groups[key].Len() != int(group.ClustersCount) {
				return false // the status or the labels of a page are yet to be written
			}
		}
		return groups.GetClusters().Equal(sets.New(expected...)) && len(groups) == number && len(placement.Status.DecisionGroups) == number
	})
	groups := []any{}
	tracked := s.tracker.ExistingClusterGroupsBesides()
	after := tracked.GetClusters()
	for _, key := range tracked.GetOrderedGroupKeys() {
		groups = append(groups, map[string]any{"group": key, "clusters": sets.List(tracked[key])})
	}
	conditions := map[string]string{}
	for _, condition := range placement.Status.Conditions {
		conditions[condition.Type] = fmt.Sprintf("%s %s", condition.Status, condition.Reason)
	}
	s.out.record(step, map[string]any{
		"added": sets.List(after.Difference(before)), "deleted": sets.List(before.Difference(after)), "groups": groups,
		"selected": placement.Status.NumberOfSelectedClusters, "decisionGroups": placement.Status.DecisionGroups, "conditions": conditions,
	}, nil)
	s.pages(step)
}

// pages records the PlacementDecisions, without scores and reasons, which Open Cluster Management does not write.
func (s *story) pages(step string) {
	found, err := s.hub.clusters.ClusterV1beta1().PlacementDecisions(fleet).List(s.ctx, metav1.ListOptions{LabelSelector: clusterv1beta1.PlacementLabel + "=web"})
	must(err)
	pages := []any{}
	for _, page := range found.Items {
		clusters := []string{}
		for _, decision := range page.Status.Decisions {
			clusters = append(clusters, decision.ClusterName)
		}
		pages = append(pages, map[string]any{
			"name": page.Name, "labels": page.Labels, "clusters": clusters, "owned": metav1.IsControlledBy(&page, s.placement),
			"owners": page.OwnerReferences,
		})
	}
	s.out.record(step+": pages", pages, nil)
}

func (s *story) patch(change string) {
	_, err := s.hub.clusters.ClusterV1beta1().Placements(fleet).Patch(s.ctx, "web", types.MergePatchType, []byte(change), metav1.PatchOptions{})
	must(err)
}

// available reports the health of a cluster, as its agent does.
func (s *story) available(name string, status metav1.ConditionStatus) {
	clusters := s.hub.clusters.ClusterV1().ManagedClusters()
	must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cluster, err := clusters.Get(s.ctx, name, metav1.GetOptions{})
		must(err)
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
			Type: clusterv1.ManagedClusterConditionAvailable, Status: status, Reason: "Told", Message: "as told",
		})
		_, err = clusters.UpdateStatus(s.ctx, cluster, metav1.UpdateOptions{})
		return err
	}))
}

// tainted waits until a cluster has exactly these taints.
func (s *story) tainted(name string, keys ...string) {
	if !eventually(func() bool {
		cluster, err := s.hub.clusters.ClusterV1().ManagedClusters().Get(s.ctx, name, metav1.GetOptions{})
		must(err)
		found := []string{}
		for _, taint := range cluster.Spec.Taints {
			found = append(found, taint.Key)
		}
		return slices.Equal(found, keys)
	}) {
		must(fmt.Errorf("the taints of %s are not %v", name, keys))
	}
}

func (s *story) bound(name string, status metav1.ConditionStatus) {
	var binding *clusterv1beta2.ManagedClusterSetBinding
	eventually(func() bool {
		var err error
		binding, err = s.hub.clusters.ClusterV1beta2().ManagedClusterSetBindings(fleet).Get(s.ctx, name, metav1.GetOptions{})
		must(err)
		return meta.IsStatusConditionPresentAndEqual(binding.Status.Conditions, clusterv1beta2.ClusterSetBindingBoundType, status)
	})
	s.out.record(fmt.Sprintf("the binding of %s is bound: %s", name, status), binding.Status, nil)
}
