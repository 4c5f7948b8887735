"""The pipeline for spark-submit, whose session it uses: spark-submit ... run_pipeline.py CAPTURES TABLES"""

import sys

from barnabas.captures.spark import pipeline
from pyspark.sql import SparkSession

captures, tables = sys.argv[1:]
with SparkSession.builder.appName("barnabas").getOrCreate() as spark:
    result = pipeline.run(spark, captures, tables, lambda line: print(line, flush=True))
print(f"{result.read} files read, {result.unchanged} unchanged")
for line in result.damaged + result.left_out:
    print(line)
