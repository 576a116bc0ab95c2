{{- /* The names that `mpctl watch install` gives its objects (mpctl/app/watch/install.py, access/rbac.py). */}}
{{- define "mpctl-watch.name" -}}
mpctl-watch{{ with .Values.namespace }}-{{ . }}{{ end }}
{{- end }}

{{- define "mpctl-watch.role" -}}
mpctl-watch.{{ .Release.Namespace }}
{{- end }}

{{- define "mpctl-watch.subject" -}}
{{- $name := include "mpctl-watch.name" . }}
{{- $words := regexReplaceAll "[^a-z0-9]+" (printf "serviceaccount-%s" $name) "-" | trunc 40 | trimAll "-" }}
{{- printf "ServiceAccount:%s/%s" .Release.Namespace $name | sha256sum | trunc 8 | printf "%s-%s" $words }}
{{- end }}

{{- define "mpctl-watch.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "mpctl-watch.check" -}}
{{- if not .Values.sharedHome }}
{{- if eq .Values.namespace .Release.Namespace }}
{{- fail (printf "namespace %s is watched: whoever has the role edit there can act as the watch; install it into another namespace, or set sharedHome where operators alone have edit" .Release.Namespace) }}
{{- end }}
{{- if and (not .Values.namespace) (ne .Release.Namespace "mpctl-system") }}
{{- fail (printf "namespace %s is watched, as all are: install the watch into mpctl-system, or set sharedHome where operators alone have edit" .Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}
