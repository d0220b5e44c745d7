// node work.js URL QUEUE COUNT: a worker for jobs of the store, as docs/wire.md says; ends after COUNT attempts.
const amqp = require("amqplib");
const [url, queue, count] = process.argv.slice(2);

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
    channel.publish("taskmq.reports", message.store.reports, Buffer.from(JSON.stringify([run(message)])), { mandatory: true });
    // Only a report that the broker has lets the job's message go.
    await channel.waitForConfirms();
    channel.ack(delivery);
    seen.add(`${message.task} ${message.attempt ?? 1}`);
    if (seen.size === Number(count)) {
      await channel.close();
      await connection.close();
      console.log([...seen].sort().join("\n"));
    }
  });
})();
