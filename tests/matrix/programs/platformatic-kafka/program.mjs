// @platformatic/kafka. What it does is in ../../stages.py.
import { Admin, ConfigResourceTypes, Consumer, FetchIsolationLevels, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { readFileSync } from 'node:fs'
import { booked, gzip, main, plain, within } from './node_stages.mjs'

const { version } = JSON.parse(readFileSync(new URL('node_modules/@platformatic/kafka/package.json', import.meta.url)))

const options = bootstrap => ({
  clientId: 'platformatic-client', bootstrapBrokers: [bootstrap], retries: 5, retryDelay: 300, timeout: 5000
})
const producerOf = (bootstrap, more = {}) => new Producer({ ...options(bootstrap), serializers: stringSerializers, ...more })
const consumerOf = (bootstrap, groupId, more = {}) => new Consumer({
  ...options(bootstrap), groupId, deserializers: stringDeserializers, maxWaitTime: 200, ...more
})

async function read (consumer, topic, count) {
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
  const messages = []
  await within((async () => {
    for await (const message of stream) {
      messages.push(message)
      if (messages.length === count) break
    }
  })(), `${count} records`)
  return messages
}

const offsets = async (bootstrap, groupId, topic) => {
  const admin = new Admin(options(bootstrap))
  const [found] = await admin.listConsumerGroupOffsets({ groups: [{ groupId, topics: [{ name: topic, partitionIndexes: [0, 1] }] }] })
  await admin.close()
  return found.topics[0].partitions.map(({ partitionIndex, committedOffset }) => [partitionIndex, Number(committedOffset)])
}

async function group (bootstrap, run) {
  const topic = `${run}-orders`
  const seen = []
  const committed = []
  const producer = producerOf(bootstrap)
  for (const [values, compression] of [[plain, 'none'], [gzip, 'gzip']]) {
    const messages = values.map((value, n) => ({ topic, key: `k${n}`, value, partition: n % 2 }))
    await producer.send({ messages, compression, acks: -1 })
    const consumer = consumerOf(bootstrap, `${run}-group`)
    const found = await read(consumer, topic, values.length)
    seen.push(found.map(({ value }) => value).sort())
    const ends = new Map()
    for (const { partition, offset } of found) {
      if (offset >= (ends.get(partition) ?? 0n)) ends.set(partition, offset + 1n)
    }
    await consumer.commit({ offsets: [...ends].map(([partition, offset]) => ({ topic, partition, offset, leaderEpoch: -1 })) })
    await consumer.close(true)
    committed.push((await offsets(bootstrap, `${run}-group`, topic)).reduce((sum, [, offset]) => sum + offset, 0))
  }
  await producer.close(true)
  return { first: seen[0], second: seen[1], committed }
}

async function transactions (bootstrap, run) {
  const topic = `${run}-booked`
  const producer = producerOf(bootstrap, { idempotent: true, transactionalId: `${run}-tx` })
  const send = (transaction, ...values) => transaction.send({ messages: values.map(value => ({ topic, value, partition: 0 })) })
  const first = await producer.beginTransaction()
  await send(first, ...booked.slice(0, 3))
  await first.commit()
  const second = await producer.beginTransaction()
  await send(second, 'dropped')
  await second.abort()
  const third = await producer.beginTransaction()
  await send(third, 'end')
  await third.commit()
  await producer.close(true)
  const consumer = consumerOf(bootstrap, `${run}-audit`, { isolationLevel: FetchIsolationLevels.READ_COMMITTED })
  const found = await read(consumer, topic, booked.length)
  await consumer.close(true)
  return { committed: found.map(({ value }) => value) }
}

async function admin (bootstrap, run) {
  const topic = `${run}-made`
  const admin = new Admin(options(bootstrap))
  await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1, configs: [{ name: 'retention.ms', value: '3600000' }] })
  // a topic's settings are there once its metadata is
  const { topics } = await admin.metadata({ topics: [topic] })
  const [described] = await admin.describeConfigs({
    resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: ['retention.ms'] }]
  })
  await admin.deleteTopics({ topics: [topic] })
  await admin.close()
  const retention = described.configs.find(({ name }) => name === 'retention.ms').value
  return { partitions: topics.get(topic).partitionsCount, retention, deleted: true }
}

main(`@platformatic/kafka ${version}`, { group, transactions, admin })
