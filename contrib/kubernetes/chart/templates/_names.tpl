{{/* The name of roles and of the lease. */}}
{{- define "vanward.gateway" -}}
{{ .Release.Name }}-gateway
{{- end }}

{{- define "vanward.serviceAccount" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}
