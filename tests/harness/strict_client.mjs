// A strict Matrix client: it gives keys to, and reads, devices alone that their owner's identity signed.
//
// One JSON object a line on stdin is a call ({id, do, ...}), each answered on stdout ({id, ok} or
// {id, error}); what happens meanwhile is told there, too ({event, ...}).

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [packages, url, userId, deviceId, accessToken, password] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(createRequire(`${packages}/`).resolve(name)).href);

const tell = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
for (const level of ["log", "info", "debug", "trace", "warn", "error"]) {
    console[level] = (...said) => process.stderr.write(`${said.join(" ")}\n`);
}

// Node before 22 lacks it, and the library takes it for granted.
Promise.withResolvers ??= () => {
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
};

const sdk = await load("matrix-js-sdk");
const api = await load("matrix-js-sdk/lib/crypto-api/index.js");

const client = sdk.createClient({
    baseUrl: url,
    userId,
    deviceId,
    accessToken,
    verificationMethods: ["m.sas.v1"],
    cryptoCallbacks: {},
});
await client.initRustCrypto({ useIndexedDB: false });
const crypto = client.getCrypto();
crypto.setDeviceIsolationMode(new api.OnlySignedDevicesIsolationMode());

const shown = (event) => ({
    event: "message",
    event_id: event.getId(),
    room_id: event.getRoomId(),
    sender: event.getSender(),
    type: event.getType(),
    body: event.getContent().body ?? null,
    failure: event.isDecryptionFailure() ? event.decryptionFailureReason : null,
});

client.on(sdk.ClientEvent.Event, (event) => {
    if (event.getWireType() === "m.room.encrypted" && event.getSender() !== userId) {
        if (event.isBeingDecrypted() || event.getType() === "m.room.encrypted") {
            event.once("Event.decrypted", () => tell(shown(event)));
            client.decryptEventIfNeeded(event);
        } else {
            tell(shown(event));
        }
    }
});

client.on(api.CryptoEvent.UserTrustStatusChanged, (user_id, status) => {
    tell({ event: "trust", user_id, verified: status.isCrossSigningVerified() });
});

let sas = null;
let request = null;

// A person presses "verify by emoji" as soon as the other side is ready, and sees the emoji then.
function follow(asked) {
    request = asked;
    sas = null;
    let started = false;
    const look = async () => {
        tell({ event: "phase", phase: asked.phase, code: asked.cancellationCode ?? null });
        if (asked.phase === api.VerificationPhase.Ready && !started) {
            started = true;
            const verifier = await asked.startVerification("m.sas.v1");
            verifier.on(api.VerifierEvent.ShowSas, (callbacks) => {
                sas = callbacks;
                tell({ event: "emoji", emoji: callbacks.sas.emoji, numbers: callbacks.sas.decimal });
            });
            verifier.verify().then(
                () => tell({ event: "verified" }),
                (error) => tell({ event: "failed", why: String(error) }),
            );
        }
    };
    asked.on(api.VerificationRequestEvent.Change, look);
    return look();
}

const calls = {
    async start() {
        await new Promise((ready, failed) => {
            client.on(sdk.ClientEvent.Sync, (state) => {
                if (state === "PREPARED") ready();
                if (state === "ERROR") failed(new Error("sync"));
            });
            client.startClient({ initialSyncLimit: 20 }).catch(failed);
        });
        await crypto.bootstrapCrossSigning({
            setupNewCrossSigning: true,
            authUploadDeviceSigningKeys: async (makeRequest) => {
                try {
                    return await makeRequest(null);
                } catch (error) {
                    const identifier = { type: "m.id.user", user: userId };
                    return makeRequest({
                        type: "m.login.password",
                        identifier,
                        password,
                        session: error.data?.session,
                    });
                }
            },
        });
        return { version: crypto.getVersion() };
    },
    async say({ room_id, body }) {
        return client.sendTextMessage(room_id, body);
    },
    async verify_device({ user_id, device_id }) {
        await crypto.getUserDeviceInfo([user_id], true);
        await follow(await crypto.requestDeviceVerification(user_id, device_id));
    },
    async verify_in_room({ user_id, room_id }) {
        await crypto.getUserDeviceInfo([user_id], true);
        await follow(await crypto.requestVerificationDM(user_id, room_id));
    },
    // As clients do where a person presses "verify" in somebody's profile, and there is no direct chat yet.
    async verify_in_direct_chat({ user_id }) {
        const encryption = { algorithm: "m.megolm.v1.aes-sha2" };
        const { room_id } = await client.createRoom({
            preset: "trusted_private_chat",
            is_direct: true,
            invite: [user_id],
            initial_state: [{ type: "m.room.encryption", state_key: "", content: encryption }],
        });
        await crypto.getUserDeviceInfo([user_id], true);
        await follow(await crypto.requestVerificationDM(user_id, room_id));
    },
    async match() {
        await sas.confirm();
    },
    async mismatch() {
        sas.mismatch();
    },
    async cancel() {
        await request.cancel();
    },
    async trust({ user_id, device_id }) {
        await crypto.getUserDeviceInfo([user_id], true);
        const user = await crypto.getUserVerificationStatus(user_id);
        const device = await crypto.getDeviceVerificationStatus(user_id, device_id);
        return {
            user: user.isCrossSigningVerified(),
            signed: device?.signedByOwner ?? false,
            device: device?.isVerified() ?? false,
        };
    },
    async stop() {
        client.stopClient();
    },
};

for await (const line of createInterface({ input: process.stdin })) {
    const { id, do: what, ...words } = JSON.parse(line);
    calls[what](words).then(
        (ok) => tell({ id, ok: ok ?? null }),
        (error) => tell({ id, error: `${error}\n${error?.stack}` }),
    );
}
process.exit(0);
