{{/* By which names programs other than rangelog's reach the processes of a role: a list in JSON. root, role. */}}
{{- define "rangelog.hosts" -}}
{{- $name := include "rangelog.fullname" .root }}
{{- $hosts := list }}
{{- if eq .role "broker" }}
{{- $hosts = append $hosts (printf "%s-broker.%s.svc" $name .root.Release.Namespace) }}
{{- end }}
{{- if and (eq .role "pd") .root.Values.pd.page.enabled }}
{{- $hosts = concat $hosts (include "rangelog.pageHosts" .root | fromJsonArray) }}
{{- end }}
{{- toJson $hosts }}
{{- end }}

{{- define "rangelog.pageHosts" -}}
{{- $page := printf "%s-page" (include "rangelog.fullname" .) }}
{{- toJson (concat (list $page (printf "%s.%s" $page .Release.Namespace) (printf "%s.%s.svc" $page .Release.Namespace)) .Values.pd.page.hosts) }}
{{- end }}

{{/* Every certificate that the release needs: a list of {of, role, principal, server, hosts} in JSON. Its Secret is OF-tls. */}}
{{- define "rangelog.certificates" -}}
{{- $root := . }}
{{- $name := include "rangelog.fullname" . }}
{{- $made := list }}
{{- range splitList "," (include "rangelog.podNames" (dict "set" (printf "%s-pd" $name) "replicas" .Values.pd.replicas)) }}
{{- $made = append $made (dict "of" . "role" "pd" "principal" .) }}
{{- end }}
{{- range include "rangelog.rangeServerSets" . | fromJsonArray }}
{{- range splitList "," (include "rangelog.podNames" .) }}
{{- $made = append $made (dict "of" . "role" "range-server" "principal" .) }}
{{- end }}
{{- end }}
{{- if .Values.brokers.replicas }}
{{- $made = append $made (dict "of" (printf "%s-broker" $name) "role" "broker" "principal" "*") }}
{{- end }}
{{- if .Values.budgetKeeper.enabled }}
{{- $made = append $made (dict "of" (printf "%s-keeper" $name) "role" "client" "principal" (printf "%s-keeper" $name)) }}
{{- end }}
{{- if .Values.pd.page.enabled }}
{{- $made = append $made (dict "of" (printf "%s-page" $name) "role" .Values.pd.page.role "principal" (printf "%s-page" $name)) }}
{{- end }}
{{- range $made }}
{{- $_ := set . "server" (has .role (list "pd" "range-server" "broker")) }}
{{- $_ := set . "hosts" (include "rangelog.hosts" (dict "root" $root "role" .role) | fromJsonArray) }}
{{- end }}
{{- toJson $made }}
{{- end }}

{{/* The pod of the job that keeps certificates: metadata and spec. */}}
{{- define "rangelog.certificatesPod" -}}
{{- $name := include "rangelog.fullname" .root -}}
metadata:
  labels: {{ include "rangelog.labels" . | nindent 4 }}
spec:
  serviceAccountName: {{ $name }}-certificates
  {{- include "rangelog.podSecurity" .root | replace "automountServiceAccountToken: false" "automountServiceAccountToken: true" | nindent 2 }}
  restartPolicy: Never
  terminationGracePeriodSeconds: 30
  containers:
    - name: certificates
      image: {{ include "rangelog.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [certs, secrets, --plan, /etc/rangelog/certificates/plan.json]
      resources: {{ toJson .root.Values.tls.job.resources }}
      {{- include "rangelog.containerSecurity" . | nindent 6 }}
      volumeMounts:
        - { name: plan, mountPath: /etc/rangelog/certificates, readOnly: true }
  volumes:
    - name: plan
      configMap: { name: {{ $name }}-certificates }
{{- end }}
