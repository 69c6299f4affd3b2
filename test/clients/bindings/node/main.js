// Binds JavaScript's values by node-postgres and postgres.js; the folder above says what
// it reads and prints.
'use strict'

const readline = require('readline')

class Order {
  constructor(fields) {
    Object.assign(this, fields)
  }
}

// What an application has in hand; undefined: there is no such type.
function value(kind, text) {
  switch (kind) {
    case 'text':
    case 'uuid': return text
    case 'null': return null
    case 'int': return Number(text)
    case 'bigint': return BigInt(text)
    case 'json':
    case 'list': return JSON.parse(text)
    case 'struct': return new Order(JSON.parse(text))
    case 'time': return new Date(text)
  }
}

const drivers = {
  pg() {
    const { Client } = require('pg')
    const client = new Client()
    const connected = client.connect()
    return {
      run: async (statement, values) => {
        await connected
        const result = await client.query({ text: statement, values, rowMode: 'array' })
        return result.rows[0][0]
      },
      end: () => client.end()
    }
  },
  'postgres.js'() {
    const sql = require('postgres')(process.env.DATABASE_URL, { ssl: false, max: 1, onnotice() {} })
    return {
      run: async (statement, values) => Object.values((await sql.unsafe(statement, values))[0])[0],
      end: () => sql.end()
    }
  }
}

async function main() {
  const driver = drivers[process.argv[2]]()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [number, kinds, statement, ...texts] = line.split('\t')
    const values = kinds.split(',').map((kind, i) => value(kind, texts[i]))
    if (values.includes(undefined)) {
      console.log(`${number}\tnone`)
      continue
    }
    try {
      console.log(`${number}\tok\t${await driver.run(statement, values)}`)
    } catch (e) {
      const state = /^[0-9A-Z]{5}$/.test(e.code) ? e.code : 'client'
      console.log(`${number}\t${state}\t${String(e.message).replace(/\s+/g, ' ')}`)
    }
  }
  await driver.end()
}

main()
