/* SPDX-License-Identifier: MIT */
/*
 * MADs from hostile peers, and programs that do anything in any order: the connection
 * manager keeps its own rules, and comes to rest when all have gone.
 *
 * The input is a list of steps. Messages are taken from it as they are, or made of it
 * so that they fit a connection.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cm_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HELD_MAX 8
#define PORT	 7000

static const uint8_t gid[3][16] = {
	{ [10] = 0xff, 0xff, 10, 0, 0, 1 },
	{ [10] = 0xff, 0xff, 10, 0, 0, 2 },
	{ 0xfd, [15] = 1 },
};

struct bed {
	const uint8_t *data; /* what is left of the input */
	size_t size;
	struct snt__soft_cm *cm;
	struct snt__soft_cm_channel channel[2];
	struct snt__soft_cm_listener *listener;
	struct snt__cm_id listener_id;
	struct snt__soft_cm_connection *held[HELD_MAX]; /* by the program */
	bool over[HELD_MAX];
	uint64_t now;
	uint64_t random;
};

static uint8_t take(struct bed *bed)
{
	if (!bed->size)
		return 0;
	bed->size--;
	return *bed->data++;
}

static void fill_random(void *arg, void *buffer, size_t length)
{
	struct bed *bed = arg;
	uint8_t *to = buffer;

	for (size_t i = 0; i < length; i++)
		to[i] = (bed->random =
				 bed->random * UINT64_C(6364136223846793005) + 1) >>
			56;
}

static void wake(void *arg)
{
	(void)arg;
}

/*
 * Messages in
 */

/* Whatever is accepted goes round. */
static void check_round(const uint8_t *mad)
{
	uint8_t first[SNT__CM_MAD_SIZE], second[SNT__CM_MAD_SIZE];
	struct snt__cm_addresses addresses;
	struct snt__cm_message message;

	if (snt__cm_decode(mad, &message))
		return;
	assert(message.data + message.data_length == mad + SNT__CM_MAD_SIZE);
	snt__cm_encode(&message, first);
	assert(!snt__cm_decode(first, &message));
	snt__cm_encode(&message, second);
	assert(!memcmp(first, second, sizeof(first)));
	if (message.kind == SNT__CM_REQ &&
	    !snt__cm_addresses_decode(message.data, &addresses)) {
		uint8_t bytes[SNT__CM_ADDRESSES_SIZE];

		snt__cm_addresses_encode(&addresses, bytes);
		assert(!snt__cm_addresses_decode(bytes, &addresses));
	}
}

static void input(struct bed *bed, const uint8_t mad[SNT__CM_MAD_SIZE], unsigned from,
		  unsigned to)
{
	struct snt__soft_path path = { .hop_limit = 64, .source_port = 0xc000 };
	/* Just as long as it is, so that reading behind it is found out. */
	uint8_t *copy = malloc(SNT__CM_MAD_SIZE);

	memcpy(copy, mad, SNT__CM_MAD_SIZE);
	memcpy(path.source, gid[from % 3], 16);
	memcpy(path.target, gid[to % 3], 16);
	check_round(copy);
	snt__soft_cm_input(bed->cm, &path, copy, bed->now);
	free(copy);
}

static void raw_message(struct bed *bed)
{
	uint8_t mad[SNT__CM_MAD_SIZE] = { 0 }, where = take(bed);

	for (unsigned i = 0; i < sizeof(mad) && bed->size; i++)
		mad[i] = take(bed);
	input(bed, mad, where, where >> 2);
}

static struct snt__soft_cm_connection *pick(struct bed *bed)
{
	return &bed->cm->pool[take(bed) % bed->cm->pool_size];
}

static void fill_req(struct bed *bed, struct snt__cm_message *message, uint8_t *data)
{
	struct snt__cm_addresses addresses = { .port = take(bed) };

	memcpy(addresses.source, gid[1], 16);
	memcpy(addresses.target, gid[0], 16);
	snt__cm_addresses_encode(&addresses, data);
	message->data = data;
	message->data_length = SNT__CM_REQ_PRIVATE;
	message->remote_id = 0;
	message->local_id = take(bed);
	message->req = (struct snt__cm_req){
		.service = snt__cm_service(PORT),
		.qpn = take(bed),
		.pkey = 0xffff,
		.mtu = 1 + take(bed) % 5,
		.responder_resources = take(bed),
		.initiator_depth = take(bed),
	};
	memcpy(message->req.local_gid, gid[1], 16);
	memcpy(message->req.remote_gid, gid[0], 16);
}

/* One that fits a connection, or nearly so. */
static void fitting_message(struct bed *bed)
{
	struct snt__soft_cm_connection *to = pick(bed);
	uint8_t data[SNT__CM_REQ_PRIVATE] = { 0 }, mad[SNT__CM_MAD_SIZE];
	uint8_t wrong = take(bed);
	struct snt__cm_message message = {
		.kind = SNT__CM_REQ + take(bed) % SNT__CM_KINDS,
		.transaction = to->transaction,
		.local_id = wrong & 1 ? take(bed) : to->remote_id,
		.remote_id = wrong & 2 ? take(bed) : to->local_id,
	};

	if (message.kind == SNT__CM_REQ) {
		fill_req(bed, &message, data);
	} else if (message.kind == SNT__CM_REP) {
		message.rep.qpn = take(bed);
		if (!message.local_id)
			message.local_id = 1 + take(bed);
	} else if (message.kind == SNT__CM_REJ) {
		message.rej.reason = take(bed) % 40;
		message.rej.info = data;
		message.rej.info_length = take(bed) % 73;
	} else if (message.kind == SNT__CM_MRA) {
		message.mra.about = take(bed) % 3;
		message.mra.timeout = take(bed) % 32;
	} else if (message.kind == SNT__CM_DREQ) {
		message.dreq.qpn = wrong & 4 ? take(bed) : to->local_qpn;
	}
	snt__cm_encode(&message, mad);
	input(bed, mad, wrong & 8 ? 2 : 1, 0);
}

/*
 * Messages out, and time
 */

static void output(struct bed *bed)
{
	struct snt__soft_path path;
	uint8_t mad[SNT__CM_MAD_SIZE];
	struct snt__cm_message message;
	unsigned most = 1 + take(bed) % 100;

	while (most-- && snt__soft_cm_output(bed->cm, &path, mad, bed->now)) {
		assert(!snt__cm_decode(mad, &message));
		check_round(mad);
	}
}

static void pass_time(struct bed *bed)
{
	uint64_t until = bed->now + (UINT64_C(1) << take(bed) % 37), deadline;

	while ((deadline = snt__soft_cm_deadline(bed->cm)) <= until) {
		if (bed->now < deadline)
			bed->now = deadline;
		snt__soft_cm_timer(bed->cm, bed->now);
	}
	bed->now = until;
}

/*
 * The program
 */

static int place_of(struct bed *bed, const struct snt__soft_cm_connection *connection)
{
	for (int i = 0; i < HELD_MAX; i++)
		if (bed->held[i] == connection)
			return i;
	return -1;
}

static void drop(struct bed *bed, int place)
{
	if (bed->held[place])
		snt__soft_cm_release(bed->cm, bed->held[place]);
	bed->held[place] = NULL;
	bed->over[place] = false;
}

static void take_event(struct bed *bed)
{
	struct snt__cm_event event;
	int place;

	if (snt__soft_cm_next_event(&bed->channel[0], &event) &&
	    snt__soft_cm_next_event(&bed->channel[1], &event))
		return;
	place = place_of(bed, snt__soft_cm_of(event.id));
	if (event.type == SNT__CM_EVENT_REQUEST) {
		assert(place < 0 && event.listener == &bed->listener_id);
		place = place_of(bed, NULL);
		if (place < 0)
			drop(bed, place = 0);
		bed->held[place] = snt__soft_cm_of(event.id);
		return;
	}
	/* Nothing comes after the end, and nothing of what was let go of. */
	assert(place >= 0 && !bed->over[place]);
	bed->over[place] = event.type >= SNT__CM_EVENT_REJECTED;
}

static void resolve(struct bed *bed)
{
	int place = place_of(bed, NULL);
	struct snt__soft_cm_connection *connection;

	if (place >= 0 &&
	    !snt__soft_cm_resolve(&bed->channel[0], gid[0], gid[1], PORT, &connection))
		bed->held[place] = connection;
}

static void call(struct bed *bed)
{
	int place = take(bed) % HELD_MAX;
	struct snt__soft_cm_connection *connection = bed->held[place];
	struct snt__cm_param param = { .qpn = take(bed),
				       .data = "hello",
				       .data_length = 6 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;

	if (!connection)
		return;
	switch (take(bed) % 8) {
	case 0:
		snt__soft_cm_connect(bed->cm, connection, &param);
		break;
	case 1:
		snt__soft_cm_accept(bed->cm, connection, &param);
		break;
	case 2:
		bed->over[place] |= !snt__soft_cm_reject(bed->cm, connection, "no", 3);
		break;
	case 3:
		snt__soft_cm_establish(bed->cm, connection);
		break;
	case 4:
		snt__soft_cm_notify(bed->cm, connection);
		break;
	case 5:
		snt__soft_cm_disconnect(bed->cm, connection);
		break;
	case 6:
		snt__soft_cm_qp_attr(bed->cm, connection, &attr, &mask);
		snt__soft_cm_move(connection, &bed->channel[param.qpn & 1]);
		break;
	default:
		drop(bed, place);
		break;
	}
}

static void listen_anew(struct bed *bed)
{
	int ret;

	snt__soft_cm_unlisten(bed->cm, bed->listener);
	ret = snt__soft_cm_listen(&bed->channel[0], gid[0], PORT, 1 + take(bed) % 3,
				  &bed->listener_id, &bed->listener);
	assert(!ret);
}

static void (*const steps[])(struct bed *bed) = {
	raw_message, fitting_message, fitting_message, fitting_message, output,
	pass_time,   take_event,      take_event,      resolve,		call,
	call,	     listen_anew,
};

#define STEPS (sizeof(steps) / sizeof(steps[0]))

/* All leave, and after some time no peer is remembered. */
static void check_end(struct bed *bed)
{
	struct snt__soft_path path;
	uint8_t mad[SNT__CM_MAD_SIZE];
	uint64_t deadline;

	snt__soft_cm_unlisten(bed->cm, bed->listener);
	for (int i = 0; i < HELD_MAX; i++)
		drop(bed, i);
	assert(!bed->cm->live && !bed->channel[0].live && !bed->channel[1].live);
	do {
		while (snt__soft_cm_output(bed->cm, &path, mad, bed->now))
			;
		deadline = snt__soft_cm_deadline(bed->cm);
		if (deadline != SNT__SOFT_NEVER) {
			bed->now = deadline;
			snt__soft_cm_timer(bed->cm, bed->now);
		}
	} while (deadline != SNT__SOFT_NEVER);
	assert(!bed->cm->lingering_count && !cm_check(bed->cm));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bed bed = { .data = data, .size = size, .random = 1 };
	struct snt__soft_cm_config config = { .random = fill_random,
					      .arg = &bed,
					      .connection_max = 5,
					      .linger_max = 4,
					      .listener_max = 2 };
	int ret = snt__soft_cm_create(&config, &bed.cm);

	assert(!ret);
	for (unsigned i = 0; i < 2; i++) {
		bed.channel[i].wake = wake;
		snt__soft_cm_channel_open(bed.cm, &bed.channel[i]);
	}
	ret = snt__soft_cm_listen(&bed.channel[0], gid[0], PORT, 3, &bed.listener_id,
				  &bed.listener);
	assert(!ret);
	while (bed.size) {
		steps[take(&bed) % STEPS](&bed);
		assert(!cm_check(bed.cm));
	}
	check_end(&bed);
	snt__soft_cm_destroy(bed.cm);
	return 0;
}
