// node work.js URL QUEUE COUNT: a worker for jobs of the store, as docs/wire.md says; ends after COUNT attempts.
const amqp = require("amqplib");
const [url, queue, count] = process.argv.slice(2);

// A message that comes again may be running at another worker: the scheduler decides.
function returned({ attempt = 1, store: { id, token, proof } }) {
  return { id, token, proof, attempt, worker: "node", kind: "interrupted", redelivered: true };
}

function started({ attempt = 1, store: { id, token, proof } }) {
  return { id, token, proof, attempt, worker: "node", kind: "started", started: Date.now() };
}

function lost({ attempt = 1, store: { id, token, proof, crashes } }) {
  const error = { type_name: "WorkerLost", message: `${crashes} workers died with it`, traceback: "" };
  return { id, token, proof, attempt, worker: "node", kind: "failed", error };
}

// This worker loads no arguments that are kept elsewhere; another one may.
function refused({ attempt = 1, v, store: { id, token, proof } }) {
  const error = { type_name: "Refused", message: `version ${v} of the message`, traceback: "" };
  return { id, token, proof, attempt, worker: "node", kind: "refused", delay: 60000, error };
}

function run({ task, args: [number], attempt = 1, store: { id, token, proof } }) {
  const report = { id, token, proof, attempt, worker: "node", started: Date.now(), ran: 3 };
  if (task === "fail") {
    return { ...report, kind: "failed", error: { type_name: "RangeError", message: "too large", traceback: "" } };
  }
  if (task === "flaky" && attempt === 1) {
    return { ...report, kind: "retry", delay: 50, error: { type_name: "Busy", message: "later" } };
  }
  const result = Buffer.from(JSON.stringify(number * 2)).toString("base64");
  return { ...report, kind: "succeeded", content_type: "application/json", result };
}

// The scheduler declares the queue with its first job; asking for one that is not there closes the channel.
async function consuming(connection) {
  for (;;) {
    const channel = await connection.createConfirmChannel();
    channel.on("error", () => {});
    try {
      await channel.checkQueue(queue);
      return channel;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

(async () => {
  const connection = await amqp.connect(url);
  const channel = await consuming(connection);
  const seen = new Set();
  await channel.prefetch(1);
  await channel.consume(queue, async (delivery) => {
    const message = JSON.parse(delivery.content);
    const { reports, crashes } = message.store;
    // Only a report that the broker has lets the job's message go.
    const tell = (report) => {
      channel.publish("taskmq.reports", reports, Buffer.from(JSON.stringify([report])), { mandatory: true });
      return channel.waitForConfirms();
    };
    if (delivery.fields.redelivered) {
      await tell(returned(message));
      channel.ack(delivery);
      return;
    }
    if (message.v > 1) {
      await tell(refused(message));
    } else {
      if (crashes !== undefined) await tell(started(message));
      await tell(crashes >= 3 ? lost(message) : run(message));
    }
    channel.ack(delivery);
    seen.add(`${message.task} ${message.attempt ?? 1}`);
    if (seen.size === Number(count)) {
      await channel.close();
      await connection.close();
      console.log([...seen].sort().join("\n"));
    }
  });
})();
