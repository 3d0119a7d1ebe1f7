{{- define "rangelog.fullname" -}}
{{- if .Values.nameOverride }}{{ .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains "rangelog" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-rangelog" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "rangelog.selector" -}}
app.kubernetes.io/name: rangelog
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "rangelog.labels" -}}
app.kubernetes.io/name: rangelog
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "rangelog.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The name by which a pod of a StatefulSet is found: POD.SERVICE.NAMESPACE.svc.DOMAIN; `service` is the headless one. */}}
{{- define "rangelog.domain" -}}
{{ .service }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{/* host:port of the API of each placement driver, as a list in TOML and as text with commas. */}}
{{- define "rangelog.pdAddresses" -}}
{{- $name := include "rangelog.fullname" . -}}
{{- $domain := include "rangelog.domain" (dict "root" . "service" (printf "%s-pd" $name)) -}}
{{- range $i := until (int .Values.pd.replicas) }}{{ if $i }},{{ end }}{{ $name }}-pd-{{ $i }}.{{ $domain }}:7100{{ end }}
{{- end }}

{{/* Further keys of a TOML file: text, numbers, booleans and lists are the same in JSON. */}}
{{- define "rangelog.toml" -}}
{{- range $key, $value := . }}
{{- if kindIs "float64" $value }}
{{ $key }} = {{ if eq (floor $value) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- else }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/* StatefulSets of range servers: a list of {set, zone, nodeZone, replicas} in JSON. */}}
{{- define "rangelog.rangeServerSets" -}}
{{- $name := include "rangelog.fullname" . -}}
{{- $sets := list -}}
{{- $zones := list }}{{ range .Values.rangeServers.zones }}{{ $zones = append $zones .name }}{{ end }}
{{- if ne (len $zones) (len (uniq $zones)) }}{{ fail "rangeServers.zones: each name once" }}{{ end }}
{{- range .Values.rangeServers.zones }}
{{- $sets = append $sets (dict "set" (printf "%s-rs-%s" $name .name) "zone" .name "nodeZone" .nodeZone "replicas" .replicas) }}
{{- else }}
{{- $sets = append $sets (dict "set" (printf "%s-rs" $name) "zone" "" "nodeZone" "" "replicas" .Values.rangeServers.replicas) }}
{{- end }}
{{- toJson $sets }}
{{- end }}

{{/* Names of the pods of a StatefulSet, with commas. */}}
{{- define "rangelog.podNames" -}}
{{- $set := .set }}
{{- range $i := until (int .replicas) }}{{ if $i }},{{ end }}{{ $set }}-{{ $i }}{{ end }}
{{- end }}

{{- define "rangelog.issuerName" -}}
{{- if .Values.tls.createAuthority }}{{ include "rangelog.fullname" . }}-authority
{{- else }}{{ required "tls.issuerRef.name: name the issuer, or set tls.createAuthority" .Values.tls.issuerRef.name }}{{ end }}
{{- end }}

{{/* The directory of a pod's own certificate: of those with a certificate each, a part of a volume that has all of the set. */}}
{{- define "rangelog.tlsDirectory" -}}
{{- if and (has .root.Values.tls.mode (list "certManager" "job")) .pods }}/etc/rangelog/tls/$(POD_NAME){{ else }}/etc/rangelog/tls{{ end }}
{{- end }}

{{/* The pods that the budget of range servers counts: those, and the keeper. */}}
{{- define "rangelog.budgetLabel" -}}
rangelog/budget: range-servers
{{- end }}

{{- define "rangelog.budget" -}}
app.kubernetes.io/name: rangelog, app.kubernetes.io/instance: {{ .Release.Name }}, {{ include "rangelog.budgetLabel" . }}
{{- end }}

{{/* Environment of pdctl and the probes: root, pods. */}}
{{- define "rangelog.clientEnvironment" -}}
- name: RANGELOG_PD
  value: {{ include "rangelog.pdAddresses" .root }}
{{- if ne .root.Values.tls.mode "none" }}
{{- $directory := include "rangelog.tlsDirectory" . }}
{{- range $key, $file := dict "CA" "ca.crt" "CERT" "tls.crt" "KEY" "tls.key" }}
- name: RANGELOG_TLS_{{ $key }}
  value: {{ $directory }}/{{ $file }}
{{- end }}
{{- end }}
{{- if .root.Values.secrets.token }}
- name: RANGELOG_TOKEN
  valueFrom: { secretKeyRef: { name: {{ .root.Values.secrets.existingSecret }}, key: token } }
{{- end }}
{{- end }}

{{/* Environment of all processes: root, pods, prefix (of the settings). */}}
{{- define "rangelog.environment" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
- name: {{ .prefix }}_NAME
  value: $(POD_NAME)
{{- if ne .root.Values.tls.mode "none" }}
{{- $directory := include "rangelog.tlsDirectory" . }}
{{- range $key, $file := dict "CA" "ca.crt" "CERT" "tls.crt" "KEY" "tls.key" }}
- name: {{ $.prefix }}_TLS_{{ $key }}
  value: {{ $directory }}/{{ $file }}
{{- end }}
{{- end }}
{{- if .root.Values.secrets.token }}
- name: {{ .prefix }}_TOKEN
  valueFrom: { secretKeyRef: { name: {{ .root.Values.secrets.existingSecret }}, key: token } }
{{- end }}
{{ include "rangelog.clientEnvironment" . }}
{{- with .root.Values.trust }}
{{- if .configMap }}
- name: SSL_CERT_FILE # of tokens' issuers
  value: /etc/rangelog/trust/{{ .key }}
- name: AWS_CA_BUNDLE # of the object store
  value: /etc/rangelog/trust/{{ .key }}
{{- end }}
{{- end }}
{{- with .root.Values.tier.credentialsSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: { secretKeyRef: { name: {{ . }}, key: AWS_ACCESS_KEY_ID } }
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: { secretKeyRef: { name: {{ . }}, key: AWS_SECRET_ACCESS_KEY } }
{{- end }}
{{- end }}

{{/* Probes: the image's own command asks the metrics port, with the pod's certificate where there is TLS. */}}
{{- define "rangelog.probes" -}}
startupProbe: # a range server reads its log first: up to 30 minutes
  exec: { command: [rangelog, healthcheck, live, --metrics, "127.0.0.1:9180"] }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 360
livenessProbe: # the event loop turns; a fault elsewhere restarts nobody
  exec: { command: [rangelog, healthcheck, live, --metrics, "127.0.0.1:9180"] }
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  exec: { command: [rangelog, healthcheck, ready, --metrics, "127.0.0.1:9180"] }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{- define "rangelog.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false # their variables would begin like those of the settings
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "rangelog.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{/* Placement of pods: root, component, values. */}}
{{- define "rangelog.placement" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: {{ .root.Values.topologySpread.zone }}
    labelSelector: { matchLabels: { {{ include "rangelog.selector" . | replace "\n" ", " }} } }
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .root.Values.topologySpread.host }}
    labelSelector: { matchLabels: { {{ include "rangelog.selector" . | replace "\n" ", " }} } }
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* A volume of certificates: root, volume, role, secret; pods (names with commas) where each has its own, else principal. */}}
{{- define "rangelog.tlsVolume" -}}
{{- $mode := .root.Values.tls.mode }}
{{- if eq $mode "csi" }}
- name: {{ .volume }}
  csi:
    driver: csi.cert-manager.io
    readOnly: true
    volumeAttributes:
      csi.cert-manager.io/issuer-name: {{ include "rangelog.issuerName" .root }}
      csi.cert-manager.io/issuer-kind: {{ .root.Values.tls.issuerRef.kind }}
      csi.cert-manager.io/issuer-group: {{ .root.Values.tls.issuerRef.group }}
      csi.cert-manager.io/uri-sans: rangelog://{{ .role }}/{{ .principal | default "${POD_NAME}" }}
      {{- if has .role (list "pd" "range-server" "broker") }}
      csi.cert-manager.io/dns-names: {{ join "," (concat (list (printf "%s.rangelog" .role)) (include "rangelog.hosts" . | fromJsonArray)) }}
      csi.cert-manager.io/key-usages: digital signature,key encipherment,server auth,client auth
      {{- else }}
      csi.cert-manager.io/key-usages: digital signature,client auth
      {{- end }}
      csi.cert-manager.io/duration: {{ .root.Values.tls.duration }}
      csi.cert-manager.io/renew-before: {{ .root.Values.tls.renewBefore }}
      csi.cert-manager.io/fs-group: "10001"
{{- else if and (ne $mode "secrets") .pods }}
- name: {{ .volume }}
  projected:
    defaultMode: 0440
    sources:
      {{- range splitList "," .pods }}
      - secret:
          name: {{ . }}-tls
          items:
            {{- $pod := . }}
            {{- range list "ca.crt" "tls.crt" "tls.key" }}
            - { key: {{ . }}, path: {{ $pod }}/{{ . }} }
            {{- end }}
      {{- end }}
{{- else if ne $mode "none" }}
- name: {{ .volume }}
  secret: # with items a pod waits until the Secret has them
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{ key: ca.crt, path: ca.crt }, { key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }]
{{- end }}
{{- end }}
