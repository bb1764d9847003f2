package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// follower is a watch and an informer of one kind.
type follower struct {
	ctx      context.Context
	watch    watch.Interface
	informer cache.SharedIndexInformer
	lister   cache.GenericLister
	mutex    sync.Mutex
	heard    map[string]int
}

func follow[T, L any](tried *trial, subject subject[T, L]) *follower {
	gvk := kindOf(new(T))
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	informer, err := tried.informers.ForResource(plural)
	must(err)
	followed := &follower{ctx: tried.ctx, informer: informer.Informer(), lister: informer.Lister(), heard: map[string]int{}}
	count := func(event string) func(any) {
		return func(any) {
			followed.mutex.Lock()
			defer followed.mutex.Unlock()
			followed.heard[event]++
		}
	}
	_, err = followed.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: count("added"), DeleteFunc: count("deleted")})
	must(err)
	tried.informers.Start(tried.ctx.Done())
	if !cache.WaitForCacheSync(tried.ctx.Done(), followed.informer.HasSynced) {
		must(fmt.Errorf("the informer of %s does not synchronise", gvk.Kind))
	}
	everything, err := subject.client.List(tried.ctx, metav1.ListOptions{})
	must(err)
	list, err := meta.ListAccessor(everything)
	must(err)
	followed.watch, err = subject.client.Watch(tried.ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	must(err)
	return followed
}

// finish records what was heard of, when the last objects are gone.
func (f *follower) finish(record func(string, any, error)) {
	defer f.watch.Stop()
	events, gone := []string{}, 0
	deadline := time.After(patience)
	for gone < 4 { // first, second, third and held
		select {
		case event, open := <-f.watch.ResultChan():
			if !open {
				record("watch", nil, fmt.Errorf("the watch ended"))
				return
			}
			if event.Type == watch.Deleted {
				gone++
			}
			events = append(events, fmt.Sprintf("%s %s", event.Type, accessor(event.Object).GetName()))
		case <-deadline:
			record("watch", events, nil)
			return
		}
	}
	record("watch", events, nil)
	eventually(func() bool {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		return f.heard["deleted"] == f.heard["added"] && f.heard["deleted"] == 4
	})
	f.mutex.Lock()
	defer f.mutex.Unlock()
	record("informer", f.heard, nil)
	left, err := f.lister.List(labels.Everything())
	record("lister", len(left), err)
}

// eventually waits until it holds, or patience is over.
func eventually(holds func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}
