package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clusterscheme "open-cluster-management.io/api/client/cluster/clientset/versioned/scheme"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

const patience = 30 * time.Second

// generated is what all generated clients have in common.
type generated[T, L any] interface {
	Create(ctx context.Context, object *T, options metav1.CreateOptions) (*T, error)
	Update(ctx context.Context, object *T, options metav1.UpdateOptions) (*T, error)
	UpdateStatus(ctx context.Context, object *T, options metav1.UpdateOptions) (*T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error
	Get(ctx context.Context, name string, options metav1.GetOptions) (*T, error)
	List(ctx context.Context, options metav1.ListOptions) (*L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*T, error)
}

// subject is a kind that is tried, and how to fill its objects.
type subject[T, L any] struct {
	kind     string
	client   generated[T, L]
	prepared func(*T) // what an object needs to be created
	changed  func(*T) // a change of its spec
	reported func(*T) // a change of its status
}

// trial is everything that all kinds share.
type trial struct {
	hub       hub
	out       *transcript
	ctx       context.Context
	namespace string
	informers clusterinformers.SharedInformerFactory
}

func requests(ctx context.Context, hub hub, out *transcript) {
	const namespace = "requests"
	_, err := hub.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	discover(hub, out)
	requestEveryKind(&trial{hub, out, ctx, namespace, clusterinformers.NewSharedInformerFactory(hub.clusters, 0)})
}

// discover lists what the API group serves.
func discover(hub hub, out *transcript) {
	groups, err := hub.core.Discovery().ServerGroups()
	must(err)
	for _, group := range groups.Groups {
		if group.Name != clusterv1.GroupName {
			continue
		}
		out.record("discovery: versions", group.Versions, nil)
		out.record("discovery: preferred version", group.PreferredVersion, nil)
		for _, version := range group.Versions {
			resources, err := hub.core.Discovery().ServerResourcesForGroupVersion(version.GroupVersion)
			must(err)
			for _, resource := range resources.APIResources {
				resource.StorageVersionHash = ""
				sort.Strings(resource.Verbs)
				out.record(fmt.Sprintf("discovery: %s %s", version.Version, resource.Name), resource, nil)
			}
		}
	}
}

// try makes every kind of request for one kind, while an informer and a watch follow.
func try[T, L any](tried *trial, subject subject[T, L]) {
	ctx, client := tried.ctx, subject.client
	record := func(step string, value any, err error) { tried.out.record(subject.kind+": "+step, value, err) }
	made := func(name string) *T {
		object := new(T)
		accessor(object).SetName(name)
		if subject.prepared != nil {
			subject.prepared(object)
		}
		return object
	}
	follower := follow(tried, subject)

	first, err := client.Create(ctx, made("first"), metav1.CreateOptions{FieldManager: "creator"})
	record("create", first, err)
	must(err)
	_, err = client.Create(ctx, made("first"), metav1.CreateOptions{})
	record("create again", nil, err)
	_, err = client.Create(ctx, made("Not_A_Name"), metav1.CreateOptions{})
	record("create with a bad name", nil, err)
	tested, err := client.Create(ctx, made("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	record("create as a dry run", tested, err)
	found, err := client.Get(ctx, "first", metav1.GetOptions{})
	record("get", found, err)
	_, err = client.Get(ctx, "dry", metav1.GetOptions{})
	record("get what is not there", nil, err)

	writeSpec(ctx, subject, first, record)
	writeStatus(ctx, subject, record)
	patch(ctx, subject, record)
	list(ctx, client, made, record)
	remove(ctx, client, made, record)
	follower.finish(record)
}

func writeSpec[T, L any](ctx context.Context, subject subject[T, L], first *T, record func(string, any, error)) {
	client, stale := subject.client, copied(first)
	labelsOf(first)["tried"] = "true"
	if subject.changed != nil {
		subject.changed(first)
	}
	updated, err := client.Update(ctx, first, metav1.UpdateOptions{FieldManager: "updater"})
	record("update", updated, err)
	_, err = client.Update(ctx, stale, metav1.UpdateOptions{})
	record("update of an old version", nil, err)
	same, err := client.Update(ctx, copied(updated), metav1.UpdateOptions{FieldManager: "updater"})
	record("update without a change", accessor(same).GetResourceVersion() == accessor(updated).GetResourceVersion(), err)
	missing := copied(updated)
	accessor(missing).SetName("missing")
	if subject.prepared != nil {
		subject.prepared(missing)
	}
	_, err = client.Update(ctx, missing, metav1.UpdateOptions{})
	record("update of what is not there", nil, err)
	if subject.reported != nil {
		mixed := copied(updated)
		subject.reported(mixed)
		labelsOf(mixed)["mixed"] = "true"
		updated, err = client.Update(ctx, mixed, metav1.UpdateOptions{FieldManager: "updater"})
		record("update leaves the status", updated, err)
	}
}

func writeStatus[T, L any](ctx context.Context, subject subject[T, L], record func(string, any, error)) {
	found, err := subject.client.Get(ctx, "first", metav1.GetOptions{})
	must(err)
	stale := copied(found)
	subject.reported(found)
	labelsOf(found)["by-status"] = "true"
	written, err := subject.client.UpdateStatus(ctx, found, metav1.UpdateOptions{FieldManager: "reporter"})
	record("update of the status", written, err)
	subject.reported(stale)
	_, err = subject.client.UpdateStatus(ctx, stale, metav1.UpdateOptions{})
	record("update of the status of an old version", nil, err)
}

func patch[T, L any](ctx context.Context, subject subject[T, L], record func(string, any, error)) {
	send := func(step string, kind types.PatchType, data string, options metav1.PatchOptions, subresources ...string) {
		patched, err := subject.client.Patch(ctx, "first", kind, []byte(data), options, subresources...)
		record(step, patched, err)
	}
	merge := metav1.PatchOptions{FieldManager: "patcher"}
	send("merge patch", types.MergePatchType, `{"metadata": {"labels": {"merged": "true", "tried": null}}}`, merge)
	send("merge patch of an old version", types.MergePatchType, `{"metadata": {"resourceVersion": "1", "labels": {"old": "true"}}}`, merge)
	send("JSON patch", types.JSONPatchType, `[{"op": "add", "path": "/metadata/labels/json", "value": "true"}]`, merge)
	send("JSON patch with a test that fails", types.JSONPatchType, `[{"op": "test", "path": "/metadata/labels/json", "value": "no"}]`, merge)
	send("strategic merge patch", types.StrategicMergePatchType, `{"metadata": {"labels": {"strategic": "true"}}}`, merge)
	send("merge patch of the status with null", types.MergePatchType, `{"status": null}`, merge, "status")
	apply := metav1.PatchOptions{FieldManager: "applier"}
	force := true
	document := func(value string) string {
		gvk := kindOf(new(T))
		data, err := json.Marshal(map[string]any{
			"apiVersion": gvk.GroupVersion().String(),
			"kind":       gvk.Kind,
			"metadata":   map[string]any{"name": "first", "labels": map[string]string{"applied": value}},
		})
		must(err)
		return string(data)
	}
	send("apply", types.ApplyPatchType, document("one"), apply)
	send("apply again", types.ApplyPatchType, document("one"), apply)
	other := metav1.PatchOptions{FieldManager: "other"}
	send("apply in conflict", types.ApplyPatchType, document("two"), other)
	other.Force = &force
	send("apply by force", types.ApplyPatchType, document("two"), other)
	_, err := subject.client.Patch(ctx, "missing", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), merge)
	record("merge patch of what is not there", nil, err)
}

func list[T, L any](ctx context.Context, client generated[T, L], made func(string) *T, record func(string, any, error)) {
	for _, name := range []string{"second", "third"} {
		object := made(name)
		labelsOf(object)["listed"] = name
		_, err := client.Create(ctx, object, metav1.CreateOptions{FieldManager: "creator"})
		must(err)
	}
	selectors := []metav1.ListOptions{
		{LabelSelector: "listed"},
		{LabelSelector: "listed in (second), !other"},
		{FieldSelector: "metadata.name=third"},
		{LabelSelector: "a b c"},
		{FieldSelector: "spec.nothing=1"},
	}
	for _, options := range selectors {
		found, err := client.List(ctx, options)
		record(fmt.Sprintf("list by %q %q", options.LabelSelector, options.FieldSelector), names(found), err)
	}
	page, err := client.List(ctx, metav1.ListOptions{LabelSelector: "listed", Limit: 1})
	record("first page of a list", names(page), err)
	must(err)
	accessor, err := meta.ListAccessor(page)
	must(err)
	page, err = client.List(ctx, metav1.ListOptions{LabelSelector: "listed", Limit: 1, Continue: accessor.GetContinue()})
	record("next page of a list", names(page), err)
	_, err = client.List(ctx, metav1.ListOptions{Continue: "nonsense"})
	record("list with a bad token", nil, err)
}

func remove[T, L any](ctx context.Context, client generated[T, L], made func(string) *T, record func(string, any, error)) {
	wrong := types.UID("00000000-0000-0000-0000-000000000000")
	record("delete another one", "deleted", client.Delete(ctx, "first", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}))
	held := made("held")
	accessor(held).SetFinalizers([]string{"example.com/hold"})
	_, err := client.Create(ctx, held, metav1.CreateOptions{FieldManager: "creator"})
	must(err)
	record("delete with a finalizer", "deleted", client.Delete(ctx, "held", metav1.DeleteOptions{}))
	found, err := client.Get(ctx, "held", metav1.GetOptions{})
	must(err)
	record("is being deleted", accessor(found).GetDeletionTimestamp() != nil, nil)
	accessor(found).SetFinalizers(nil)
	_, err = client.Update(ctx, found, metav1.UpdateOptions{})
	record("remove the finalizer", "updated", err)
	_, err = client.Get(ctx, "held", metav1.GetOptions{})
	record("is gone", nil, err)
	record("delete", "deleted", client.Delete(ctx, "first", metav1.DeleteOptions{}))
	record("delete again", "deleted", client.Delete(ctx, "first", metav1.DeleteOptions{}))
	record("delete a collection", "deleted", client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "listed"}))
	left, err := client.List(ctx, metav1.ListOptions{})
	record("left", names(left), err)
}

func accessor(object any) metav1.Object {
	found, err := meta.Accessor(object)
	must(err)
	return found
}

func labelsOf(object any) map[string]string {
	found := accessor(object)
	if found.GetLabels() == nil {
		found.SetLabels(map[string]string{})
	}
	return found.GetLabels()
}

func copied[T any](object *T) *T {
	return any(object).(runtime.Object).DeepCopyObject().(any).(*T)
}

func names(list any) []string {
	found := []string{}
	if list == nil || reflect.ValueOf(list).IsNil() {
		return found
	}
	items, err := meta.ExtractList(list.(runtime.Object))
	must(err)
	for _, item := range items {
		found = append(found, accessor(item).GetName())
	}
	sort.Strings(found)
	return found
}

func kindOf(object any) schema.GroupVersionKind {
	kinds, _, err := clusterscheme.Scheme.ObjectKinds(object.(runtime.Object))
	must(err)
	return kinds[0]
}
