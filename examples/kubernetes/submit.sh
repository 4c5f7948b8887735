#!/bin/sh
# Run the pipeline on Kubernetes: submit.sh https://API-SERVER:6443 IMAGE
# First: kubectl apply -f storage.yaml, and build and push the image (Dockerfile).
set -eu
cd "$(dirname "$0")"

exec spark-submit --master "k8s://$1" --deploy-mode cluster --name barnabas \
    --conf spark.kubernetes.container.image="$2" \
    --conf spark.kubernetes.namespace="${NAMESPACE:-default}" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=barnabas \
    --conf spark.kubernetes.driver.podTemplateFile=pod.yaml \
    --conf spark.kubernetes.executor.podTemplateFile=pod.yaml \
    --conf spark.executor.instances="${EXECUTORS:-4}" --conf spark.executor.cores=2 --conf spark.executor.memory=4g \
    ${SPARK_OPTIONS:-} \
    local:///opt/barnabas/run_pipeline.py "${CAPTURES:-/captures}" "${TABLES:-/tables}"
