// node send.js URL QUEUE: publishes each line of standard input, {body, properties}, as amqplib does it.
const amqp = require("amqplib");
const lines = require("node:fs").readFileSync(0, "utf8").trim().split("\n");

(async () => {
  const connection = await amqp.connect(process.argv[2]);
  const channel = await connection.createConfirmChannel();
  for (const line of lines) {
    const { body, properties } = JSON.parse(line);
    channel.publish("taskmq", process.argv[3], Buffer.from(JSON.stringify(body)), properties || {});
  }
  await channel.waitForConfirms();
  await connection.close();
})();
