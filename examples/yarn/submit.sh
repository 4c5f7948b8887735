#!/bin/sh
# Run the pipeline on YARN: submit.sh CAPTURES TABLES, both as all nodes see them (a shared folder, or hdfs:// and s3:// URIs).
# HADOOP_CONF_DIR says where YARN is. The Python environment travels as an archive; venv-pack makes it once:
#
#   python3 -m venv environment
#   environment/bin/pip install PATH_OF_BARNABAS pyarrow numpy venv-pack
#   environment/bin/venv-pack --prefix environment -o barnabas.tar.gz
#
# The nodes need the Python that the environment was made with, at the same path.
set -eu
cd "$(dirname "$0")"

exec spark-submit --master yarn --deploy-mode cluster --name barnabas \
    --archives "${ENVIRONMENT:-barnabas.tar.gz}#environment" \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=environment/bin/python \
    --conf spark.executorEnv.PYSPARK_PYTHON=environment/bin/python \
    --num-executors "${EXECUTORS:-4}" --executor-cores 2 --executor-memory "${MEMORY:-4g}" \
    ${SPARK_OPTIONS:-} \
    ../run_pipeline.py "$1" "$2"
