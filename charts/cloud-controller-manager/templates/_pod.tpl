{{/* The pod, the same for a Deployment and a DaemonSet. */}}

{{- define "ccm.pod" -}}
metadata:
  labels:
    {{- include "ccm.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "ccm.serviceAccount" . }}
  hostNetwork: {{ .Values.hostNetwork }}
  dnsPolicy: {{ .Values.dnsPolicy }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- if .Values.netAdmin }}
    # A process that is not root keeps no capability when it starts.
    runAsUser: 0
    {{- else }}
    runAsNonRoot: true
    runAsUser: 65532
    {{- end }}
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: cloud-controller-manager
      image: {{ include "ccm.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "ccm.args" . | trim | nindent 8 }}
      {{- if or .Values.apiServer.host .Values.extraEnv }}
      env:
        {{- if .Values.apiServer.host }}
        - name: KUBERNETES_SERVICE_HOST
          value: {{ .Values.apiServer.host | quote }}
        - name: KUBERNETES_SERVICE_PORT
          value: {{ .Values.apiServer.port | quote }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: https
          containerPort: {{ .Values.securePort }}
          {{- if .Values.hostNetwork }}
          hostPort: {{ .Values.securePort }}
          {{- end }}
          protocol: TCP
        {{- if include "ccm.webhooks" . }}
        - name: webhook
          containerPort: {{ .Values.webhooks.port }}
          {{- if .Values.hostNetwork }}
          hostPort: {{ .Values.webhooks.port }}
          {{- end }}
          protocol: TCP
        {{- end }}
      {{- include "ccm.probes" . | nindent 6 }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
          {{- if .Values.netAdmin }}
          add: [NET_ADMIN, NET_RAW]
          {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- if include "ccm.cloudConfigSecret" . }}
        - name: cloud-config
          mountPath: /etc/proreus/cloud-config
          readOnly: true
        {{- end }}
        {{- if .Values.tls.existingSecret }}
        - name: tls
          mountPath: /etc/proreus/tls
          readOnly: true
        {{- end }}
        {{- if include "ccm.webhooks" . }}
        - name: webhook-tls
          mountPath: /etc/proreus/webhook-tls
          readOnly: true
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        medium: Memory
        sizeLimit: 16Mi
    {{- with include "ccm.cloudConfigSecret" . }}
    - name: cloud-config
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.tls.existingSecret }}
    - name: tls
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- if include "ccm.webhooks" . }}
    - name: webhook-tls
      secret:
        secretName: {{ include "ccm.webhookSecret" . }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- include "ccm.placement" . | trim | nindent 2 }}
{{- end }}

{{- define "ccm.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
{{- end }}
{{- end }}

{{- define "ccm.frrImage" -}}
{{- with .Values.bgpSpeaker.frr.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest | quote }}
{{- else }}
{{- printf "%s:%s" .repository .tag | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ccm.probes" -}}
{{- /* A slow start must not end in a restart: up to 60 s until the port answers. */ -}}
startupProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 15
  failureThreshold: 8
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{- define "ccm.placement" -}}
{{- if .Values.nodeSelector }}
nodeSelector:
  {{- toYaml .Values.nodeSelector | nindent 2 }}
{{- else if eq .Values.kind "DaemonSet" }}
nodeSelector:
  node-role.kubernetes.io/control-plane: ""
{{- end }}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if eq .Values.kind "Deployment" }}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            - key: node-role.kubernetes.io/control-plane
              operator: Exists
  podAntiAffinity:
    {{- if .Values.hostNetwork }}
    # Two on one node would want the same port.
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "ccm.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "ccm.selector" . | nindent 14 }}
    {{- end }}
{{- end }}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else if eq .Values.kind "Deployment" }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "ccm.selector" . | nindent 8 }}
{{- end }}
tolerations:
  {{- if .Values.tolerateEverything }}
  - operator: Exists
  {{- else }}
  {{- toYaml (concat .Values.tolerations .Values.extraTolerations) | nindent 2 }}
  {{- end }}
{{- end }}
