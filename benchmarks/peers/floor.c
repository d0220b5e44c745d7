/* The floor: throughput of a C program on librabbitmq.
 *
 *     floor publish HOST PORT QUEUE KIND COUNT WINDOW     persistent messages, at most WINDOW unconfirmed
 *     floor consume HOST PORT QUEUE KIND COUNT PREFETCH   acknowledges each message
 *     floor copy    HOST PORT QUEUE KIND COUNT WINDOW     replaces QUEUE's single message by COUNT copies
 *
 * Prints one JSON line: number of messages, seconds, processor time.
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char BODY[] =
    "{\"v\":1,\"id\":\"01920000-0000-7000-8000-000000000000\",\"task\":\"bench.noop\","
    "\"args\":[12345,\"hello\",{\"a\":1,\"b\":\"x\"}],\"enqueued\":1730000000000}";

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static void put(amqp_connection_state_t connection, const char *queue, const amqp_basic_properties_t *properties,
                amqp_bytes_t body, int count, int window) {
    uint64_t confirmed = 0;
    amqp_confirm_select(connection, 1);
    check(amqp_get_rpc_reply(connection), "confirm.select");
    for (int sent = 0; (int)confirmed < count;) {
        while (sent < count && sent - (int)confirmed < window) {
            amqp_basic_publish(connection, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0, properties, body);
            sent++;
        }
        amqp_frame_t frame;
        amqp_maybe_release_buffers(connection);
        if (amqp_simple_wait_frame(connection, &frame) != AMQP_STATUS_OK) {
            fprintf(stderr, "connection lost\n");
            exit(1);
        }
        if (frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD) {
            amqp_basic_ack_t *ack = frame.payload.method.decoded;
            confirmed = ack->multiple ? ack->delivery_tag : confirmed + 1;
        }
    }
}

static void publish(amqp_connection_state_t connection, const char *queue, int count, int window) {
    amqp_basic_properties_t properties = {0};
    properties._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                        AMQP_BASIC_TYPE_FLAG;
    properties.content_type = amqp_cstring_bytes("application/json");
    properties.delivery_mode = 2;
    properties.message_id = amqp_cstring_bytes("01920000-0000-7000-8000-000000000000");
    properties.type = amqp_cstring_bytes("bench.noop");
    put(connection, queue, &properties, amqp_cstring_bytes(BODY), count, window);
}

static void copy(amqp_connection_state_t connection, const char *queue, int count, int window) {
    check(amqp_basic_get(connection, 1, amqp_cstring_bytes(queue), 1), "basic.get");
    amqp_message_t message;
    check(amqp_read_message(connection, 1, &message, 0), "a message");
    put(connection, queue, &message.properties, message.body, count, window);
    amqp_destroy_message(&message);
}

static void consume(amqp_connection_state_t connection, const char *queue, int count, int prefetch) {
    amqp_basic_qos(connection, 1, 0, (uint16_t)prefetch, 0);
    check(amqp_get_rpc_reply(connection), "basic.qos");
    amqp_basic_consume(connection, 1, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(connection), "basic.consume");
    for (int got = 0; got < count; got++) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(connection);
        check(amqp_consume_message(connection, &envelope, NULL, 0), "basic.deliver");
        amqp_basic_ack(connection, 1, envelope.delivery_tag, 0);
        amqp_destroy_envelope(&envelope);
    }
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "floor publish|consume|copy HOST PORT QUEUE KIND COUNT WINDOW\n");
        return 2;
    }
    const char *what = argv[1], *queue = argv[4];
    int count = atoi(argv[6]), window = atoi(argv[7]);
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (amqp_socket_open(socket, argv[2], atoi(argv[3]))) {
        fprintf(stderr, "no connection\n");
        return 1;
    }
    check(amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(connection, 1);
    check(amqp_get_rpc_reply(connection), "channel.open");
    amqp_table_entry_t entry = {amqp_cstring_bytes("x-queue-type"), {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(argv[5]);
    amqp_table_t arguments = {1, &entry};
    if (strcmp(what, "copy") != 0) {
        amqp_queue_declare(connection, 1, amqp_cstring_bytes(queue), 0, 1, 0, 0, arguments);
        check(amqp_get_rpc_reply(connection), "queue.declare");
    }
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    if (strcmp(what, "publish") == 0) {
        publish(connection, queue, count, window);
    } else if (strcmp(what, "copy") == 0) {
        copy(connection, queue, count, window);
    } else {
        consume(connection, queue, count, window);
    }
    printf("{\"count\": %d, \"seconds\": %.6f, \"cpu\": %.6f}\n", count, now(CLOCK_MONOTONIC) - wall,
           now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
    return 0;
}
