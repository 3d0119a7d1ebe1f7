{{/* What all processes are told alike: whose tokens count, and the keys of encryption. In TOML. */}}
{{- define "rangelog.sharedSettings" -}}
{{- with .Values.tokens }}
{{- if .enabled }}
tokens = true
{{- with .oidc }}
{{- if .issuer }}
oidc_issuer = {{ toJson .issuer }}
oidc_audience = {{ toJson .audience }}
oidc_jwks = {{ .jwks | default "/etc/rangelog/oidc/jwks.json" | toJson }}
oidc_claim = {{ toJson .claim }}
oidc_prefix = {{ toJson .prefix }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.encryption.keys }}
{{- if .secret }}
encryption_keys_dir = "/etc/rangelog/keys"
{{- else if .kmsKeyId }}
encryption_kms_key_id = {{ toJson .kmsKeyId }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rangelog.sharedMounts" -}}
{{- with .Values.encryption.keys.secret }}
- { name: keys, mountPath: /etc/rangelog/keys, readOnly: true }
{{- end }}
{{- with .Values.tokens.oidc.jwksConfigMap }}
- { name: oidc, mountPath: /etc/rangelog/oidc, readOnly: true }
{{- end }}
{{- with .Values.trust.configMap }}
- { name: trust, mountPath: /etc/rangelog/trust, readOnly: true }
{{- end }}
{{- end }}

{{- define "rangelog.sharedVolumes" -}}
{{- with .Values.encryption.keys.secret }}
- name: keys # of root and the pod's group, which alone may read them
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- with .Values.tokens.oidc.jwksConfigMap }}
- name: oidc
  configMap: { name: {{ . }}, items: [{ key: jwks.json, path: jwks.json }] }
{{- end }}
{{- with .Values.trust }}
{{- if .configMap }}
- name: trust
  configMap: { name: {{ .configMap }}, items: [{ key: {{ .key }}, path: {{ .key }} }] }
{{- end }}
{{- end }}
{{- end }}

{{/* Changes with what all processes are told at their start: part of the digest that restarts pods. */}}
{{- define "rangelog.sharedDigest" -}}
{{- toJson (list .Values.tls.mode .Values.tokens .Values.encryption .Values.trust .Values.secrets .Values.tier.credentialsSecret) }}
{{- end }}
