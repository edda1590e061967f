{{- define "postroad.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "postroad.selector" -}}
app.kubernetes.io/name: postroad
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "postroad.labels" -}}
{{ include "postroad.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "postroad.monitor" -}}
{{- .Values.monitor.existingSecret | default (printf "%s-monitor" (include "postroad.name" .)) -}}
{{- end -}}

{{/* The names of the listeners that are on. */}}
{{- define "postroad.open" -}}
{{- range $name, $port := .Values.ports }}
{{- if and $port (or $.Values.tls.secretName (ne $name "console")) }}
- {{ $name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The listeners that are on, as a list for a container or a service. */}}
{{- define "postroad.ports" -}}
{{- range $name := include "postroad.open" .root | fromYamlArray }}
- name: {{ $name | replace "_" "-" }}
  {{ $.key }}: {{ index $.root.Values.ports $name }}
  protocol: {{ if eq $name "ping" }}UDP{{ else }}TCP{{ end }}
{{- end }}
{{- end -}}

{{- define "postroad.secret" -}}
{{- .Values.token.existingSecret | default (printf "%s-token" (include "postroad.name" .)) -}}
{{- end -}}
