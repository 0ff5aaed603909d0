// node --test contrib/opencode: the plugin against a daemon and an OpenCode that are functions.

import assert from "node:assert/strict"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { after, beforeEach, test } from "node:test"

const source = await readFile(new URL("./agentpod-bot.js", import.meta.url), "utf8")
const plugin = await import(`data:text/javascript,${encodeURIComponent(source)}`)
const folder = await mkdtemp(join(tmpdir(), "agentpod-"))
const tokenFile = join(folder, "token")
await writeFile(tokenFile, "made-up\n")
after(() => rm(folder, { recursive: true }))

const ASKED = { id: "per_1", sessionID: "ses_1", permission: "bash", patterns: ["ls"], always: [], metadata: {} }
const asked = (type = "permission.asked") => ({ id: "evt_1", type, properties: ASKED })
const json = (body, status = 200, headers = {}) => new Response(JSON.stringify(body), { status, headers })
const refusedConnection = () => Promise.reject(new Error("connection refused"))
const heldUntilAborted = (url, { signal }) =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))))

// A plugin whose daemon answers with `daemon`, and what it sent to whom.
async function started(daemon, { status = 200 } = {}) {
  const seen = { posts: [], replies: [], logged: [] }
  globalThis.fetch = (url, init) => {
    seen.posts.push({ url: String(url), ...init, event: JSON.parse(init.body) })
    return daemon(url, init)
  }
  const post = async (call) => {
    seen.replies.push(call)
    return { response: { status } }
  }
  const client = { _client: { post }, app: { log: async (entry) => seen.logged.push(entry.body.message) } }
  const hooks = await plugin.AgentpodBot({ client, serverUrl: new URL("http://127.0.0.1:1"), directory: "/x" })
  return { hand: (event) => hooks.event({ event }), ...seen }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

async function until(isSo) {
  while (!isSo()) await turn()
}

// What must not happen has had its chance.
async function settle() {
  for (let turns = 0; turns < 50; turns += 1) await turn()
}

beforeEach(() => {
  process.env.AGENTPOD_TOKEN_FILE = tokenFile
  process.env.AGENTPOD_RETRY_S = "0"
  delete process.env.AGENTPOD_URL
  delete process.env.AGENTPOD_ROUTE
  globalThis.setTimeout = (call) => setImmediate(call) // nothing here waits for a clock
})

test("there is one export, for OpenCode calls each", () => {
  assert.deepEqual(Object.keys(plugin), ["AgentpodBot"])
})

for (const [type, path, said, body] of [
  ["permission.updated", "/session/ses_1/permissions/per_1", { response: "once" }, { response: "once" }],
  ["permission.asked", "/permission/per_1/reply", { reply: "always" }, { reply: "always", message: undefined }],
  [
    "permission.v2.asked",
    "/api/session/ses_1/permission/per_1/reply",
    { reply: "reject", message: "use a branch" },
    { reply: "reject", message: "use a branch" },
  ],
]) {
  test(`a decision is given back where ${type} takes it`, async () => {
    process.env.AGENTPOD_ROUTE = "ops"
    const { hand, posts, replies } = await started(() => json(said))
    await hand(asked(type))
    await until(() => replies.length)
    const [call] = replies
    assert.equal(call.url, path)
    assert.deepEqual(call.body, body)
    assert.equal(posts[0].url, "http://127.0.0.1:8470/v1/harness/opencode?route=ops")
    assert.equal(posts[0].headers.authorization, "Bearer made-up")
    assert.deepEqual(posts[0].event, { type, properties: ASKED })
  })
}

const part = (input, { status = "running", callID = "call_1", sessionID = "ses_1", type = "tool" } = {}) => {
  const state = { status, input }
  const it = { id: "prt_1", sessionID, messageID: "msg_1", type, callID, tool: "docs_delete", state }
  return { type: "message.part.updated", properties: { part: it } }
}
const CALLS = [
  ["permission.updated", { callID: "call_1" }],
  ["permission.asked", { tool: { messageID: "msg_1", callID: "call_1" } }],
  ["permission.v2.asked", { source: { type: "tool", messageID: "msg_1", callID: "call_1" } }],
]
const askedOf = (type, call) => ({ type, properties: { ...ASKED, patterns: ["*"], ...call } })

for (const [type, call] of CALLS) {
  test(`what the tool of ${type} is called with goes along`, async () => {
    const { hand, posts } = await started(heldUntilAborted)
    await hand(part({ id: 7 }))
    await hand(askedOf(type, call))
    await until(() => posts.length)
    assert.deepEqual(posts[0].event, { type, properties: { ...ASKED, patterns: ["*"], ...call, input: { id: 7 } } })
  })
}

test("a tool's input may come a moment after its permission", async () => {
  const { hand, posts } = await started(heldUntilAborted)
  await hand(part({}, { status: "pending" }))
  await hand(askedOf(...CALLS[1]))
  await turn()
  await hand(part({ id: 7 }))
  await until(() => posts.length)
  assert.deepEqual(posts[0].event.properties.input, { id: 7 })
})

for (const [name, ...parts] of [
  ["is not known"],
  ["is another call's", part({ id: 7 }, { callID: "call_2" })],
  ["is another session's", part({ id: 7 }, { sessionID: "ses_2" })],
  ["is no tool's", part({ id: 7 }, { type: "text" })],
  ["is not there yet", part({}, { status: "pending" })],
  ["is of a call that is over", part({ id: 7 }), part({ id: 7 }, { status: "completed" })],
  ["is too large", part({ text: "x".repeat(300_000) })],
  ["was too long ago", part({ id: 7 }), ...Array.from({ length: 100 }, (_, i) => part({}, { callID: `call_x${i}` }))],
]) {
  test(`an input that ${name} does not go along, and the question is asked all the same`, async () => {
    const { hand, posts } = await started(heldUntilAborted)
    for (const each of parts) await hand(each)
    await hand(askedOf(...CALLS[1]))
    await until(() => posts.length)
    assert.equal("input" in posts[0].event.properties, false)
  })
}

test("a change that is shown as a diff goes without the input that makes it", async () => {
  const { hand, posts } = await started(heldUntilAborted)
  await hand(part({ filePath: "a", oldString: "x", newString: "y" }))
  await hand(askedOf("permission.asked", { ...CALLS[1][1], metadata: { diff: "-x\n+y" } }))
  await until(() => posts.length)
  assert.equal("input" in posts[0].event.properties, false)
})

test("the event hook does not wait for the person", async () => {
  const { hand, posts, replies } = await started(heldUntilAborted)
  await hand(asked())
  await until(() => posts.length)
  await settle()
  assert.equal(posts.length, 1)
  assert.equal(replies.length, 0)
})

for (const [name, daemon] of [
  ["is not there", refusedConnection],
  ["refuses the token", () => json({ detail: "unknown token", code: "unauthorized" }, 401)],
  ["has nobody to ask", () => json({ detail: "no approver" }, 503, { "retry-after": "10" })],
  ["answers with an unknown word", () => json({ reply: "allow" })],
  ["answers in another generation's words", () => json({ response: "once" })],
  ["answers an allowing word with an error status", () => json({ reply: "once" }, 500)],
  ["answers with no JSON", () => new Response("<html>", { status: 200 })],
]) {
  test(`a daemon that ${name} is a rejection that says so`, async () => {
    const { hand, replies } = await started(daemon)
    await hand(asked())
    await until(() => replies.length)
    const [{ body }] = replies
    assert.equal(body.reply, "reject")
    assert.match(body.message, /Nothing was allowed\.$/)
  })
}

test("a missing token is a rejection that says so, and nothing is sent", async () => {
  delete process.env.AGENTPOD_TOKEN_FILE
  const { hand, posts, replies } = await started(() => json({ reply: "once" }))
  await hand(asked())
  await until(() => replies.length)
  assert.match(replies[0].body.message, /AGENTPOD_TOKEN_FILE/)
  assert.equal(posts.length, 0)
})

test("a daemon that restarts is asked again", async () => {
  process.env.AGENTPOD_RETRY_S = "30"
  const answers = [refusedConnection, () => json({}, 503, { "retry-after": "1" }), () => json({ reply: "once" })]
  const { hand, posts, replies } = await started(() => answers.shift()())
  await hand(asked())
  await until(() => replies.length)
  assert.equal(replies[0].body.reply, "once")
  assert.equal(posts.length, 3)
})

test("what was answered in OpenCode is closed in the room, and not replied to", async () => {
  const { hand, posts, replies } = await started((url, init) =>
    JSON.parse(init.body).type === "permission.replied" ? json({}) : heldUntilAborted(url, init),
  )
  await hand(asked())
  await until(() => posts.length)
  await settle()
  await hand({ type: "permission.replied", properties: { sessionID: "ses_1", requestID: "per_1", reply: "once" } })
  await until(() => posts[0].signal.aborted)
  await settle()
  assert.deepEqual(
    posts.map((post) => post.event.type),
    ["permission.asked", "permission.replied"],
  )
  assert.equal(replies.length, 0)
})

test("our own answer coming back is not posted", async () => {
  const { hand, posts, replies } = await started(() => json({ reply: "once" }))
  await hand(asked())
  await until(() => replies.length)
  await hand({ type: "permission.replied", properties: { sessionID: "ses_1", requestID: "per_1", reply: "once" } })
  await settle()
  assert.equal(posts.length, 1)
})

test("a session that was aborted lets go of its question and rejects, and no other does", async () => {
  const { hand, posts, replies } = await started(heldUntilAborted)
  await hand(asked())
  await until(() => posts.length)
  await settle()
  await hand({ type: "session.idle", properties: { sessionID: "ses_2" } })
  await settle()
  assert.equal(replies.length, 0)
  await hand({ type: "session.idle", properties: { sessionID: "ses_1" } })
  await until(() => replies.length)
  assert.equal(replies[0].body.reply, "reject")
  assert.equal(posts[0].signal.aborted, true)
})

test("an event that comes twice is asked once", async () => {
  const { hand, posts } = await started(heldUntilAborted)
  await hand(asked())
  await hand(asked())
  await until(() => posts.length)
  await settle()
  assert.equal(posts.length, 1)
})

test("a reply that OpenCode does not take is tried again and then logged", async () => {
  const { hand, posts, replies, logged } = await started(() => json({ reply: "once" }), { status: 500 })
  await hand(asked())
  await until(() => posts.length)
  await until(() => logged.length)
  assert.equal(replies.length, 3)
  assert.match(logged.at(-1), /could not be replied to/)
})

test("other events are left alone", async () => {
  const { hand, posts } = await started(() => json({ reply: "once" }))
  for (const type of ["permission.ask", "question.asked", "session.idle"]) await hand({ type })
  await settle()
  assert.equal(posts.length, 0)
})
