// Asks in Matrix before OpenCode runs a tool, through a running agentpod-bot.
//
// Install: copy this file into `.opencode/plugin/` of a project or `~/.config/opencode/plugin/`,
// and let OpenCode ask (opencode.json: {"permission": {"bash": "ask", "edit": "ask"}}).
// OpenCode's own dialog stays open meanwhile; the first answer counts.
//
// Environment:
//   AGENTPOD_TOKEN_FILE  file with the client's token (required)
//   AGENTPOD_URL         where the daemon listens (default: http://127.0.0.1:8470)
//   AGENTPOD_ROUTE       one of the token's routes (default: the token's only one)
//   AGENTPOD_RETRY_S     how long to try again where the daemon does not answer (default: 30)
//
// It never allows by itself: whatever goes wrong is a rejection that says so.

import { readFile } from "node:fs/promises"

const ASKS = new Set(["permission.updated", "permission.asked", "permission.v2.asked"])
const REPLIES = new Set(["permission.replied", "permission.v2.replied"])
const WORDS = new Set(["once", "always", "reject"])
const STOPPED = { word: "reject", message: "OpenCode stopped before anybody answered. Nothing was allowed." }
const PAUSE_MS = 1_000
const GLANCE_MS = 50
const MOST_INPUTS = 100 // tool calls whose input is remembered
const LARGEST_INPUT = 256 * 1_024 // characters of one; the daemon takes no call of four times as many

const keyOf = (sessionID, id) => `${sessionID} ${id}`
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// OpenCode calls every export of this file, so there is only one.
export const AgentpodBot = async ({ client, serverUrl, directory }) => {
  const base = process.env.AGENTPOD_URL || "http://127.0.0.1:8470"
  const route = process.env.AGENTPOD_ROUTE
  const retryMs = (Number(process.env.AGENTPOD_RETRY_S ?? 30) || 0) * 1_000
  const waiting = new Map() // by session and permission: the call to the daemon that is held
  const inputs = new Map() // by session and tool call: what the tool is called with, where that is not too large

  const log = (message) =>
    Promise.resolve(client?.app?.log?.({ body: { service: "agentpod-bot", level: "warn", message } })).catch(() => {})

  async function post(event, signal) {
    const file = process.env.AGENTPOD_TOKEN_FILE
    if (!file) throw new Error("AGENTPOD_TOKEN_FILE is not set")
    const token = (await readFile(file, "utf8")).trim()
    const url = new URL("/v1/harness/opencode", base)
    if (route) url.searchParams.set("route", route)
    return fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify(event),
      redirect: "error", // the token goes nowhere else
      timeout: false, // Bun's own limit of five minutes is shorter than a person may take
      signal,
    })
  }

  // What the daemon answers, or a rejection that says why there is no answer.
  async function decided(event, signal) {
    let failing // since when the daemon does not answer
    for (;;) {
      const began = Date.now()
      let why
      let pause = PAUSE_MS
      try {
        const response = await post(event, signal)
        const body = await response.json()
        const word = event.type === "permission.updated" ? body.response : body.reply
        if (response.status === 200 && WORDS.has(word)) return { word, message: body.message }
        why = `the daemon says ${body.detail || body.title || `HTTP ${response.status}`}`
        const after = Number(response.headers.get("retry-after"))
        if (!after) return { word: "reject", message: `Nobody was asked in Matrix: ${why}. Nothing was allowed.` }
        pause = Math.min(Math.max(after * 1_000, PAUSE_MS), 5 * PAUSE_MS)
      } catch (error) {
        why = `the daemon could not be reached (${error.message})`
      }
      if (signal.aborted) return undefined
      const now = Date.now()
      if (failing === undefined || now - began > retryMs) failing = now
      if (now - failing + pause > retryMs) {
        return { word: "reject", message: `No answer came from Matrix: ${why}. Nothing was allowed.` }
      }
      await sleep(pause)
      if (signal.aborted) return undefined
    }
  }

  // Through OpenCode's own client, which also reaches a server that listens on no port.
  async function reply(event, asked, { word, message }) {
    const [path, body] = {
      "permission.updated": [`/session/${asked.sessionID}/permissions/${asked.id}`, { response: word }],
      "permission.asked": [`/permission/${asked.id}/reply`, { reply: word, message }],
      "permission.v2.asked": [`/api/session/${asked.sessionID}/permission/${asked.id}/reply`, { reply: word, message }],
    }[event.type]
    const headers = { "content-type": "application/json" }
    const inner = client?._client
    if (inner?.post) return (await inner.post({ url: path, body, headers })).response.status
    const secret = process.env.OPENCODE_SERVER_PASSWORD
    const user = process.env.OPENCODE_SERVER_USERNAME || "opencode"
    if (secret) headers.authorization = `Basic ${Buffer.from(`${user}:${secret}`).toString("base64")}`
    if (directory) headers["x-opencode-directory"] = encodeURIComponent(directory)
    return (await fetch(new URL(path, serverUrl), { method: "POST", headers, body: JSON.stringify(body) })).status
  }

  async function answer(event, asked, decision) {
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      try {
        const status = await reply(event, asked, decision)
        if (status < 500) return
      } catch (error) {
        await log(`reply to ${asked.id} failed: ${error.message}`)
      }
      await sleep(PAUSE_MS)
    }
    await log(`${asked.id} could not be replied to, and still waits in OpenCode's own dialog`)
  }

  // A permission need not say what its tool is called with, and never does for the tools of MCP servers.
  function remember({ part }) {
    if (part?.type !== "tool" || !part.callID) return
    const key = keyOf(part.sessionID, part.callID)
    inputs.delete(key)
    const { status, input } = part.state ?? {}
    if (status !== "running" || input === undefined) return
    inputs.set(key, JSON.stringify(input).length > LARGEST_INPUT ? undefined : input)
    if (inputs.size > MOST_INPUTS) inputs.delete(inputs.keys().next().value)
  }

  // The part that says it may come a moment after the permission.
  async function withInput(asked, signal) {
    const callID = asked.callID ?? asked.tool?.callID ?? asked.source?.callID
    if (!callID || asked.metadata?.diff) return asked // a diff says what the input would
    const key = keyOf(asked.sessionID, callID)
    for (let glances = PAUSE_MS / GLANCE_MS; !inputs.has(key) && glances > 0 && !signal.aborted; glances -= 1) {
      await sleep(GLANCE_MS)
    }
    return inputs.has(key) ? { ...asked, input: inputs.get(key) } : asked
  }

  async function ask(event, asked) {
    const key = keyOf(asked.sessionID, asked.id)
    if (waiting.has(key)) return
    const call = { sessionID: asked.sessionID, held: new AbortController(), replied: false }
    waiting.set(key, call)
    const properties = await withInput(asked, call.held.signal)
    const decision = (await decided({ ...event, properties }, call.held.signal)) ?? STOPPED
    if (waiting.get(key) === call) waiting.delete(key) // what is replied from now on is our own answer coming back
    if (!call.replied) await answer(event, asked, decision)
  }

  // Answered in OpenCode: the question in the room is closed, and the call that waits for it ends.
  async function answeredHere(event, reply) {
    const call = waiting.get(keyOf(reply.sessionID, reply.requestID ?? reply.permissionID))
    if (call === undefined) return
    call.replied = true
    try {
      await post(event, AbortSignal.timeout(10 * PAUSE_MS))
    } finally {
      call.held.abort()
    }
  }

  // Aborted in OpenCode: nobody waits any more. The daemon cancels a question whose call has dropped.
  function stopped({ sessionID }) {
    for (const call of waiting.values()) if (call.sessionID === sessionID) call.held.abort()
  }

  return {
    // Not awaited: OpenCode may hand out one event after the other, and a person takes a while.
    event: async ({ event }) => {
      const content = event.properties ?? event.data ?? {}
      if (ASKS.has(event.type)) {
        ask({ type: event.type, properties: content }, content).catch((error) => log(error.message))
      } else if (REPLIES.has(event.type)) {
        answeredHere({ type: event.type, properties: content }, content).catch((error) => log(error.message))
      } else if (event.type === "message.part.updated") {
        remember(content)
      } else if (event.type === "session.idle") {
        stopped(content)
      }
    },
  }
}
