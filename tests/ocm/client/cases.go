package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/yaml"
)

const visitor = "visitor" // may write objects, but has no further rights

// write is one request; what it created goes at the end of its case.
type write struct {
	User       string         `json:"user"` // default: whoever runs this
	Do         string         `json:"do"`   // create (default), update, merge, status, delete
	Kind       string         `json:"kind"`
	Name       string         `json:"name"`
	Object     map[string]any `json:"object"`
	Unrecorded bool           `json:"unrecorded"`
}

type writes struct {
	Name   string  `json:"name"`
	Writes []write `json:"writes"`
}

var resources = map[string]schema.GroupVersionResource{
	"ManagedCluster":           {Group: clusterv1.GroupName, Version: "v1", Resource: "managedclusters"},
	"ManagedClusterSet":        {Group: clusterv1.GroupName, Version: "v1beta2", Resource: "managedclustersets"},
	"ManagedClusterSetBinding": {Group: clusterv1.GroupName, Version: "v1beta2", Resource: "managedclustersetbindings"},
	"Placement":                {Group: clusterv1.GroupName, Version: "v1beta1", Resource: "placements"},
	"PlacementDecision":        {Group: clusterv1.GroupName, Version: "v1beta1", Resource: "placementdecisions"},
	"AddOnPlacementScore":      {Group: clusterv1.GroupName, Version: "v1alpha1", Resource: "addonplacementscores"},
	"Namespace":                {Version: "v1", Resource: "namespaces"},
}

// cases makes the writes of a file.
func cases(ctx context.Context, hub hub, out *transcript, file string) {
	const namespace = "cases"
	_, err := hub.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	letIn(ctx, hub)
	data, err := os.ReadFile(file)
	must(err)
	var all []writes
	must(yaml.UnmarshalStrict(data, &all))
	for _, one := range all {
		created := []func(){}
		for number, request := range one.Writes {
			client := as(hub, request.User)
			answer, err := send(ctx, client, namespace, request)
			if err == nil && (request.Do == "" || request.Do == "create") {
				name := answer.GetName()
				created = append(created, func() {
					_ = at(hub.dynamic, namespace, request.Kind).Delete(ctx, name, metav1.DeleteOptions{})
				})
			}
			if request.Unrecorded {
				must(err)
				continue
			}
			step := one.Name
			if len(one.Writes) > 1 {
				step = fmt.Sprintf("%s (%d)", one.Name, number+1)
			}
			out.record(step, answer, err)
		}
		for _, remove := range created {
			remove()
		}
	}
}

func send(ctx context.Context, client dynamic.Interface, namespace string, request write) (*unstructured.Unstructured, error) {
	target := at(client, namespace, request.Kind)
	gvr := resources[request.Kind]
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for name, value := range request.Object {
		object.Object[name] = value
	}
	object.SetAPIVersion(gvr.GroupVersion().String())
	object.SetKind(request.Kind)
	if request.Name != "" {
		object.SetName(request.Name)
	}
	switch request.Do {
	case "", "create":
		return target.Create(ctx, object, metav1.CreateOptions{})
	case "update", "status":
		found, err := target.Get(ctx, request.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		object.SetResourceVersion(found.GetResourceVersion())
		if request.Do == "status" {
			return target.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		}
		return target.Update(ctx, object, metav1.UpdateOptions{})
	case "merge":
		data, err := yaml.Marshal(request.Object)
		must(err)
		data, err = yaml.YAMLToJSON(data)
		must(err)
		return target.Patch(ctx, request.Name, types.MergePatchType, data, metav1.PatchOptions{})
	case "delete":
		return nil, target.Delete(ctx, request.Name, metav1.DeleteOptions{})
	default:
		return nil, fmt.Errorf("no such request: %s", request.Do)
	}
}

func at(client dynamic.Interface, namespace, kind string) dynamic.ResourceInterface {
	gvr, found := resources[kind]
	if !found {
		must(fmt.Errorf("no such kind: %s", kind))
	}
	switch kind {
	case "ManagedCluster", "ManagedClusterSet", "Namespace":
		return client.Resource(gvr)
	default:
		return client.Resource(gvr).Namespace(namespace)
	}
}

func as(hub hub, user string) dynamic.Interface {
	if user == "" {
		return hub.dynamic
	}
	config := rest.CopyConfig(hub.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := dynamic.NewForConfig(config)
	must(err)
	return client
}

// letIn gives the visitor the right to write clusters and bindings, and nothing more.
func letIn(ctx context.Context, hub hub) {
	name := metav1.ObjectMeta{Name: visitor}
	_, err := hub.core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: name,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{clusterv1.GroupName},
			Resources: []string{"managedclusters", "managedclustersetbindings"},
			Verbs:     []string{"create", "delete", "get", "patch", "update"},
		}},
	}, metav1.CreateOptions{})
	must(err)
	_, err = hub.core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: visitor},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: visitor}},
	}, metav1.CreateOptions{})
	must(err)
}
