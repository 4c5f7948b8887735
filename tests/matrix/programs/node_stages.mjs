// What the programs of Node's clients share; stages.py says what a program does.
export const SECONDS = Number(process.env.BARNABAS_TEST_PATIENCE ?? 90) // as in tests/harness/waiting.py
export const plain = Array.from({ length: 10 }, (_, n) => `plain ${n}`)
export const gzip = Array.from({ length: 10 }, (_, n) => `gzip ${n}`)
export const booked = ['booked 0', 'booked 1', 'booked 2', 'end']

export function within (promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error(`waited ${SECONDS} s for ${what}`), { name: 'Timeout' })), SECONDS * 1000)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// Aggregate errors say little; the innermost one has the name.
function cause (error) {
  const next = error.errors?.[0] ?? error.cause
  return next ? cause(next) : error
}

export async function main (client, stages) {
  const [bootstrap, run] = process.argv.slice(2)
  const said = { client }
  process.on('unhandledRejection', () => {})
  for (const [name, stage] of Object.entries(stages)) {
    try {
      said[name] = await within(stage(bootstrap, run), `stage ${name}`)
    } catch (error) {
      const inner = cause(error)
      said[name] = { error: String(inner.apiId ?? inner.type ?? inner.code ?? inner.name), text: String(inner.message) }
    }
  }
  console.log(JSON.stringify(said))
  process.exit(0)
}
