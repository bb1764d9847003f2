package main

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
)

var moment = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func condition(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Tried", Message: "as told", LastTransitionTime: moment}
}

func amounts(cpu, memory string) clusterv1.ResourceList {
	return clusterv1.ResourceList{
		clusterv1.ResourceCPU:    resource.MustParse(cpu),
		clusterv1.ResourceMemory: resource.MustParse(memory),
	}
}

func requestEveryKind(tried *trial) {
	hub := tried.hub.clusters
	try(tried, subject[clusterv1.ManagedCluster, clusterv1.ManagedClusterList]{
		kind:    "ManagedCluster",
		client:  hub.ClusterV1().ManagedClusters(),
		changed: func(cluster *clusterv1.ManagedCluster) { cluster.Spec.LeaseDurationSeconds = 30 },
		reported: func(cluster *clusterv1.ManagedCluster) {
			cluster.Status = clusterv1.ManagedClusterStatus{
				Conditions:    []metav1.Condition{condition(clusterv1.ManagedClusterConditionJoined)},
				Capacity:      amounts("8", "16Gi"),
				Allocatable:   amounts("7500m", "15Gi"),
				Version:       clusterv1.ManagedClusterVersion{Kubernetes: "v1.37.1"},
				ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: "region", Value: "eu"}},
			}
		},
	})
	try(tried, subject[clusterv1beta2.ManagedClusterSet, clusterv1beta2.ManagedClusterSetList]{
		kind:   "ManagedClusterSet",
		client: hub.ClusterV1beta2().ManagedClusterSets(),
		changed: func(set *clusterv1beta2.ManagedClusterSet) {
			set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{
				SelectorType:  clusterv1beta2.LabelSelector,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}},
			}
		},
		reported: func(set *clusterv1beta2.ManagedClusterSet) {
			set.Status.Conditions = []metav1.Condition{condition(clusterv1beta2.ManagedClusterSetConditionEmpty)}
		},
	})
	try(tried, subject[clusterv1beta2.ManagedClusterSetBinding, clusterv1beta2.ManagedClusterSetBindingList]{
		kind:   "ManagedClusterSetBinding",
		client: hub.ClusterV1beta2().ManagedClusterSetBindings(tried.namespace),
		prepared: func(binding *clusterv1beta2.ManagedClusterSetBinding) {
			binding.Spec.ClusterSet = binding.Name
		},
		reported: func(binding *clusterv1beta2.ManagedClusterSetBinding) {
			binding.Status.Conditions = []metav1.Condition{condition(clusterv1beta2.ClusterSetBindingBoundType)}
		},
	})
	try(tried, subject[clusterv1beta1.Placement, clusterv1beta1.PlacementList]{
		kind:   "Placement",
		client: hub.ClusterV1beta1().Placements(tried.namespace),
		changed: func(placement *clusterv1beta1.Placement) {
			clusters, seconds := int32(3), int64(60)
			placement.Spec.NumberOfClusters = &clusters
			placement.Spec.ClusterSets = []string{"global"}
			placement.Spec.SortBy = clusterv1beta1.PlacementSortByScore
			placement.Spec.Tolerations = []clusterv1beta1.Toleration{{Key: "gpu", Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: &seconds}}
			placement.Spec.PrioritizerPolicy = clusterv1beta1.PrioritizerPolicy{
				Mode: clusterv1beta1.PrioritizerPolicyModeExact,
				Configurations: []clusterv1beta1.PrioritizerConfig{{
					ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{
						Type:  clusterv1beta1.ScoreCoordinateTypeAddOn,
						AddOn: &clusterv1beta1.AddOnScore{ResourceName: "latency", ScoreName: "rtt"},
					},
					Weight: -2,
				}},
			}
		},
		reported: func(placement *clusterv1beta1.Placement) {
			placement.Status = clusterv1beta1.PlacementStatus{
				NumberOfSelectedClusters: 1,
				DecisionGroups: []clusterv1beta1.DecisionGroupStatus{{
					DecisionGroupName: "canary", Decisions: []string{placement.Name + "-decision-1"}, ClustersCount: 1,
				}},
				Conditions: []metav1.Condition{condition(clusterv1beta1.PlacementConditionSatisfied)},
			}
		},
	})
	try(tried, subject[clusterv1beta1.PlacementDecision, clusterv1beta1.PlacementDecisionList]{
		kind:   "PlacementDecision",
		client: hub.ClusterV1beta1().PlacementDecisions(tried.namespace),
		reported: func(decision *clusterv1beta1.PlacementDecision) {
			decision.Status.Decisions = []clusterv1beta1.ClusterDecision{{ClusterName: "paris"}, {ClusterName: "tokyo", Reason: "Tried"}}
		},
	})
	try(tried, subject[clusterv1alpha1.AddOnPlacementScore, clusterv1alpha1.AddOnPlacementScoreList]{
		kind:   "AddOnPlacementScore",
		client: hub.ClusterV1alpha1().AddOnPlacementScores(tried.namespace),
		reported: func(score *clusterv1alpha1.AddOnPlacementScore) {
			score.Status = clusterv1alpha1.AddOnPlacementScoreStatus{
				Scores:     []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "rtt", Value: -7}, {Name: "cost"}},
				ValidUntil: &moment,
				Conditions: []metav1.Condition{condition("Scored")},
			}
		},
	})
}
