{{- define "wharfinger.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The WharfingerConfiguration: what the values say, with the settings for a real cluster. */ -}}
{{- define "wharfinger.configuration" -}}
{{- $config := mergeOverwrite (dict "apiVersion" "wharfinger.dev/v1alpha1" "kind" "WharfingerConfiguration") (deepCopy .Values.config) -}}
{{- $policies := get $config "schedulingPolicy" | default dict -}}
{{- $mode := get $policies "mode" | default "warn" -}}
{{- $_ := set $policies "mode" (ternary "enforce" $mode (eq .Values.mode "enforce")) -}}
{{- if has "scheduler" (include "wharfinger.components" . | fromJsonArray) -}}
{{- $own := printf "system:serviceaccount:%s:wharfinger-scheduler" .Release.Namespace -}}
{{- $_ := set $policies "schedulerIdentities" (append (get $policies "schedulerIdentities" | default list) $own | uniq | sortAlpha) -}}
{{- end -}}
{{- $_ := set $config "schedulingPolicy" $policies -}}
{{- toYaml $config -}}
{{- end -}}
