{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: the names of pods, Secrets and Services are longer by a suffix, and labels have 63. */}}
{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "weir.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weir.headless" -}}{{ include "weir.fullname" . }}-nodes{{- end -}}
{{- define "weir.etcd" -}}{{ include "weir.fullname" . }}-etcd{{- end -}}
{{- define "weir.cluster" -}}{{ default (include "weir.fullname" .) .Values.cluster }}{{- end -}}
{{- define "weir.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ default (include "weir.fullname" .) .Values.serviceAccount.name }}{{- else -}}{{ default "default" .Values.serviceAccount.name }}{{- end -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end -}}

{{- define "weir.etcdSelector" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: etcd
{{- end -}}

{{- define "weir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* How many nodes there may ever be. */}}
{{- define "weir.maxNodes" -}}
{{- if .Values.autoscaling.enabled -}}{{ .Values.autoscaling.maxReplicas }}{{- else -}}{{ .Values.replicas }}{{- end -}}
{{- end -}}

{{- define "weir.hasTLS" -}}{{ if ne .Values.tls.mode "none" }}true{{ end }}{{- end -}}

{{/* Host names by which clients ask any node. */}}
{{- define "weir.hosts" -}}
{{- $name := include "weir.fullname" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) "localhost" -}}
{{- toYaml (concat $hosts .Values.tls.extraHosts | uniq) -}}
{{- end -}}

{{- define "weir.etcdEndpoints" -}}
{{- $endpoints := list -}}
{{- if .Values.etcd.bundled.enabled -}}
{{- $etcd := include "weir.etcd" . -}}
{{- range $i := until (int .Values.etcd.bundled.replicas) -}}
{{- $endpoints = append $endpoints (printf "%s-%d.%s.%s.svc:2379" $etcd $i $etcd $.Release.Namespace) -}}
{{- end -}}
{{- else -}}
{{- range .Values.etcd.endpoints -}}
{{- $endpoints = append $endpoints (printf "%s%s" (ternary "https://" "" $.Values.etcd.tls.enabled) .) -}}
{{- end -}}
{{- end -}}
{{- join "," $endpoints -}}
{{- end -}}

{{/* What the schema cannot say. */}}
{{- define "weir.check" -}}
{{- if and .Values.etcd.bundled.enabled .Values.etcd.endpoints -}}
{{- fail "etcd.endpoints is for an etcd of your own: set etcd.bundled.enabled to false" -}}
{{- end -}}
{{- if not (or .Values.etcd.bundled.enabled .Values.etcd.endpoints) -}}
{{- fail "etcd.endpoints must name an etcd, as etcd.bundled.enabled is false" -}}
{{- end -}}
{{- if and .Values.etcd.tls.enabled .Values.etcd.bundled.enabled -}}
{{- fail "etcd.tls.enabled is for etcd.endpoints: the bundled etcd has no TLS" -}}
{{- end -}}
{{- if and .Values.etcd.tls.enabled (not .Values.etcd.tls.secretName) -}}
{{- fail "etcd.tls.secretName must name the Secret with ca.crt, as etcd.tls.enabled is true" -}}
{{- end -}}
{{- if and .Values.etcd.auth.user (not .Values.etcd.auth.existingSecret) -}}
{{- fail "etcd.auth.existingSecret must name the Secret with the password of etcd.auth.user" -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "secret") (not .Values.tls.secretName) -}}
{{- fail "tls.secretName must name the Secret with the certificates, as tls.mode is secret" -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "csi") (not .Values.tls.certManager.issuerRef) -}}
{{- fail "tls.certManager.issuerRef must name an issuer, as tls.mode is csi" -}}
{{- end -}}
{{- if and (eq .Values.rules.source "configMap") (not (or .Values.rules.files .Values.rules.existingConfigMap)) -}}
{{- fail "rules.files or rules.existingConfigMap must be given, as rules.source is configMap" -}}
{{- end -}}
{{- if and (eq .Values.rules.source "etcd") (or .Values.rules.files .Values.rules.existingConfigMap) -}}
{{- fail "rules.files and rules.existingConfigMap are not used while rules.source is etcd: set it to configMap" -}}
{{- end -}}
{{- $least := add .Values.preStopSleepSeconds 40 -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $least) -}}
{{- fail (printf "terminationGracePeriodSeconds %d is too short: preStopSleepSeconds and 40 s for the handover and the snapshot are %d" (int .Values.terminationGracePeriodSeconds) (int $least)) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas %d is above maxReplicas %d" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (le (int .Values.autoscaling.scaleDown.periodSeconds) (int .Values.terminationGracePeriodSeconds)) -}}
{{- fail (printf "autoscaling.scaleDown.periodSeconds %d is too short: a pod may take terminationGracePeriodSeconds, %d, to hand over before the next one is removed" (int .Values.autoscaling.scaleDown.periodSeconds) (int .Values.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress (not .Values.networkPolicy.extraEgress) -}}
{{- range $name := list "xds-server" "trace-endpoint" -}}
{{- if hasKey $.Values.options $name -}}
{{- fail (printf "options.%s cannot be reached: add its port to networkPolicy.extraEgress, or set networkPolicy.egress to false" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with index .Values.options "rls-listen" -}}
{{- if not (regexMatch "^(0[.]0[.]0[.]0|\\[::\\])?:[1-9][0-9]*$" .) -}}
{{- fail (printf "options.rls-listen must be 0.0.0.0:PORT, :PORT or [::]:PORT, so that other pods reach it: it is %q" .) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "id" "grpc" "http" "admin" "advertise" "cluster" "data-dir" "etcd" "etcd-cert" "etcd-key" "etcd-ca" "etcd-user" "etcd-password-file" "etcd-listen" "rules" "insecure" "tls-cert" "tls-key" "tls-ca" "tls-client-auth" "counter-memory" -}}
{{- if hasKey $.Values.options $name -}}
{{- fail (printf "options.%s is set by the chart from other values" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
