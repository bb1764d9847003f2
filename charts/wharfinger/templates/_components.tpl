{{- define "wharfinger.components" -}}
{{- $found := list -}}
{{- if or (has "all" .Values.components) (has "scheduler" .Values.components) (has "reservation" .Values.components) (has "resource-policy" .Values.components) (has "resource-class" .Values.components) }}{{- $found = append $found "scheduler" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "reservation" .Values.components) }}{{- $found = append $found "reservation" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "resource-policy" .Values.components) }}{{- $found = append $found "resource-policy" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "resource-class" .Values.components) }}{{- $found = append $found "resource-class" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "placement" .Values.components) }}{{- $found = append $found "placement" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "scheduling-policy" .Values.components) }}{{- $found = append $found "scheduling-policy" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "dashboard" .Values.components) }}{{- $found = append $found "dashboard" }}{{- end -}}
{{- if or (has "all" .Values.components) (has "dashboards" .Values.components) }}{{- $found = append $found "dashboards" }}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "wharfinger.systems" -}}
{{- $components := include "wharfinger.components" . | fromJsonArray -}}
{{- $found := list -}}
{{- if has "reservation" $components }}{{- $found = append $found "reservation" }}{{- end -}}
{{- if has "resource-policy" $components }}{{- $found = append $found "resource_policy" }}{{- end -}}
{{- if has "resource-class" $components }}{{- $found = append $found "resource_class" }}{{- end -}}
{{- if has "placement" $components }}{{- $found = append $found "placement" }}{{- end -}}
{{- if has "scheduling-policy" $components }}{{- $found = append $found "scheduling_policy" }}{{- end -}}
{{- join "," $found -}}
{{- end -}}
