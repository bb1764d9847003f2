package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// transcript writes what came back from a hub, without what differs between any two runs.
type transcript struct {
	encoder *json.Encoder
}

func newTranscript(out io.Writer) *transcript {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return &transcript{encoder}
}

var (
	identifier = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// An API server says which webhook refused; a hub without webhooks only says why.
	refusal = regexp.MustCompile(`admission webhook "[^"]*" denied the request: `)
)

// record writes a step: the error, or else the value.
func (t *transcript) record(step string, value any, err error) {
	line := map[string]any{"step": step}
	if err != nil {
		line["error"] = failure(err)
	} else {
		line["answer"] = plain(value)
	}
	must(t.encoder.Encode(line))
}

func failure(err error) any {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	found := status.Status()
	message := identifier.ReplaceAllString(refusal.ReplaceAllString(found.Message, ""), "UID")
	shown := map[string]any{"code": found.Code, "reason": found.Reason, "message": message}
	if found.Details != nil {
		details := plain(found.Details).(map[string]any)
		delete(details, "uid")
		if causes, found := details["causes"].([]any); found && len(causes) > 1 {
			// A real API server has them in any order.
			sort.Slice(causes, func(i, j int) bool { return fmt.Sprint(causes[i]) < fmt.Sprint(causes[j]) })
			delete(shown, "message")
		}
		if len(details) > 0 {
			shown["details"] = details
		}
	}
	return shown
}

func plain(value any) any {
	data, err := json.Marshal(value)
	must(err)
	var decoded any
	must(json.Unmarshal(data, &decoded))
	return cleaned(decoded)
}

func cleaned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if metadata, found := value["metadata"].(map[string]any); found {
			for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
				delete(metadata, name)
			}
		}
		for name, inner := range value {
			value[name] = cleaned(inner)
		}
	case []any:
		for index, inner := range value {
			value[index] = cleaned(inner)
		}
	case string:
		if moment, err := time.Parse(time.RFC3339, value); err == nil && time.Since(moment).Abs() < time.Hour {
			return "NOW"
		}
		if !strings.Contains(value, " ") {
			return identifier.ReplaceAllString(value, "UID")
		}
	}
	return value
}
