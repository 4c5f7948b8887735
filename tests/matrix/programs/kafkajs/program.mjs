// kafkajs. What it does is in ../../stages.py.
import kafkajs from 'kafkajs'
import { readFileSync } from 'node:fs'
import { booked, gzip, main, plain, within } from './node_stages.mjs'

const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = kafkajs
const { version } = JSON.parse(readFileSync(new URL('node_modules/kafkajs/package.json', import.meta.url)))

const client = bootstrap => new Kafka({
  clientId: 'kafkajs-client',
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { retries: 4, initialRetryTime: 100 }
})

async function read (consumer, topic, count, each = async () => {}) {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const values = []
  await within(new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        await each(partition, message)
        values.push(message.value.toString())
        if (values.length === count) resolve()
      }
    }).catch(reject)
  }), `${count} records`)
  return values
}

async function group (bootstrap, run) {
  const kafka = client(bootstrap)
  const topic = `${run}-orders`
  const seen = []
  const committed = []
  const producer = kafka.producer()
  const admin = kafka.admin()
  await producer.connect()
  await admin.connect()
  for (const [values, compression] of [[plain, CompressionTypes.None], [gzip, CompressionTypes.GZIP]]) {
    const messages = values.map((value, n) => ({ key: `k${n}`, value, partition: n % 2 }))
    await producer.send({ topic, compression, messages })
    const consumer = kafka.consumer({ groupId: `${run}-group`, maxWaitTimeInMs: 200 })
    const values_ = await read(consumer, topic, values.length, (partition, message) =>
      consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }]))
    await consumer.disconnect()
    seen.push(values_.sort())
    const [found] = await admin.fetchOffsets({ groupId: `${run}-group`, topics: [topic] })
    committed.push(found.partitions.reduce((sum, { offset }) => sum + Number(offset), 0))
  }
  await producer.disconnect()
  await admin.disconnect()
  return { first: seen[0], second: seen[1], committed }
}

async function transactions (bootstrap, run) {
  const kafka = client(bootstrap)
  const topic = `${run}-booked`
  const producer = kafka.producer({ transactionalId: `${run}-tx`, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const send = (transaction, ...values) =>
    transaction.send({ topic, messages: values.map(value => ({ value, partition: 0 })) })
  const first = await producer.transaction()
  await send(first, ...booked.slice(0, 3))
  await first.sendOffsets({
    consumerGroupId: `${run}-ledger`,
    topics: [{ topic: `${run}-orders`, partitions: [{ partition: 0, offset: '7' }] }]
  })
  await first.commit()
  const second = await producer.transaction()
  await send(second, 'dropped')
  await second.abort()
  const third = await producer.transaction()
  await send(third, 'end')
  await third.commit()
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `${run}-audit`, maxWaitTimeInMs: 200 })
  const committed = await read(consumer, topic, booked.length)
  await consumer.disconnect()
  const admin = kafka.admin()
  await admin.connect()
  const [found] = await admin.fetchOffsets({ groupId: `${run}-ledger`, topics: [`${run}-orders`] })
  await admin.disconnect()
  return { committed, offset: Number(found.partitions.find(({ partition }) => partition === 0).offset) }
}

async function admin (bootstrap, run) {
  const topic = `${run}-made`
  const admin = client(bootstrap).admin()
  await admin.connect()
  const configEntries = [{ name: 'retention.ms', value: '3600000' }]
  await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 1, configEntries }], waitForLeaders: true })
  const described = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
  const retention = described.resources[0].configEntries.find(({ configName }) => configName === 'retention.ms').configValue
  return { partitions: topics[0].partitions.length, retention, deleted: true }
}

main(`kafkajs ${version}`, { group, transactions, admin })
