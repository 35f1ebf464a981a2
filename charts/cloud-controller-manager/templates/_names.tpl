{{/* Names and labels that several objects share. */}}

{{- define "ccm.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "ccm.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ccm.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ccm.labels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: cloud-controller-manager
app.kubernetes.io/part-of: proreus
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ccm.speaker" -}}
{{- printf "%s-bgp-speaker" (include "ccm.fullname" . | trunc 51 | trimSuffix "-") }}
{{- end }}

{{/* Other names than the manager's, whose Deployment and Service would select speakers, too. */}}
{{- define "ccm.speakerSelector" -}}
app.kubernetes.io/name: {{ printf "%s-bgp-speaker" (include "ccm.name" . | trunc 51 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ccm.speakerLabels" -}}
{{ include "ccm.speakerSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: bgp-speaker
app.kubernetes.io/part-of: proreus
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ccm.serviceAccount" -}}
{{- if .Values.serviceAccount.name }}
{{- .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create }}
{{- include "ccm.fullname" . }}
{{- else }}
{{- fail "serviceAccount.name is needed where serviceAccount.create is false: name one that exists" }}
{{- end }}
{{- end }}

{{- define "ccm.cloudConfigSecret" -}}
{{- if and .Values.cloudConfig.content .Values.cloudConfig.existingSecret }}
{{- fail "cloudConfig.content and cloudConfig.existingSecret exclude each other: give one" }}
{{- else if .Values.cloudConfig.content }}
{{- printf "%s-cloud-config" (include "ccm.fullname" .) }}
{{- else }}
{{- .Values.cloudConfig.existingSecret }}
{{- end }}
{{- end }}

{{/* The webhooks that are enabled, joined by commas. */}}
{{- define "ccm.webhooks" -}}
{{- $names := list }}
{{- if .Values.webhooks.persistentVolumeLabel }}{{ $names = append $names "persistentvolume-label" }}{{ end }}
{{- if .Values.webhooks.persistentVolumeClaimResize }}{{ $names = append $names "persistentvolumeclaim-resize" }}{{ end }}
{{- join "," $names }}
{{- end }}

{{- define "ccm.webhookSecret" -}}
{{- default (printf "%s-webhook" (include "ccm.fullname" .)) .Values.webhooks.tls.existingSecret }}
{{- end }}

{{/* The flags as a list of the form --flag=value: the chart's own, then `args` over them. */}}
{{- define "ccm.args" -}}
{{- $flags := dict "cloud-provider" .Values.cloudProvider "leader-elect" true "secure-port" .Values.securePort }}
{{- if include "ccm.cloudConfigSecret" . }}
{{- $_ := set $flags "cloud-config" (printf "/etc/proreus/cloud-config/%s" .Values.cloudConfig.key) }}
{{- end }}
{{- if .Values.tls.existingSecret }}
{{- $_ := set $flags "tls-cert-file" "/etc/proreus/tls/tls.crt" }}
{{- $_ := set $flags "tls-private-key-file" "/etc/proreus/tls/tls.key" }}
{{- end }}
{{- $own := list "cloud-provider" "cloud-config" "secure-port" "tls-cert-file" "tls-private-key-file" }}
{{- with include "ccm.webhooks" . }}
{{- $_ := set $flags "webhook-secure-port" $.Values.webhooks.port }}
{{- $_ := set $flags "webhook-tls-cert-file" "/etc/proreus/webhook-tls/tls.crt" }}
{{- $_ := set $flags "webhook-tls-private-key-file" "/etc/proreus/webhook-tls/tls.key" }}
{{- $own = concat $own (list "webhook-secure-port" "webhook-tls-cert-file" "webhook-tls-private-key-file") }}
{{- end }}
{{- range $flag := $own }}
{{- if hasKey $.Values.args $flag }}
{{- fail (printf "args.%s is set by the chart: use cloudProvider, cloudConfig, securePort, tls or webhooks instead" $flag) }}
{{- end }}
{{- end }}
{{- range $flag, $value := .Values.args }}
{{- if kindIs "slice" $value }}
{{- $_ := set $flags $flag (join "," $value) }}
{{- else if kindIs "invalid" $value }}
{{- $_ := unset $flags $flag }}
{{- else if kindIs "float64" $value }}
{{- $_ := set $flags $flag (printf "%v" (ternary (int64 $value) $value (eq (float64 (int64 $value)) $value))) }}
{{- else }}
{{- $_ := set $flags $flag $value }}
{{- end }}
{{- end }}
{{- with include "ccm.webhooks" . }}
{{- $_ := set $flags "webhooks" (append (without (splitList "," (get $flags "webhooks")) "") . | join ",") }}
{{- end }}
{{- range $flag, $value := $flags }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
