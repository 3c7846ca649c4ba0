/* SPDX-License-Identifier: MIT */
/* CM messages as bytes: those of the kernel, made-up ones, and bad ones. */
#include "lib/test.h"

#include "dev/soft/cm_wire.h"
#include "dev/soft/wire.h"
#include "lib/seeds.h"
#include "vectors/rxe.h"

#define MAD_AT 20 /* behind BTH and DETH */

/* The MAD in a packet of the kernel's; NULL: it has none. */
static const uint8_t *mad_of(const struct rxe_packet *rxe)
{
	bool is_mad = rxe->bytes[0] == SNT__WIRE_UD_SEND_ONLY && !rxe->bytes[5] &&
		      !rxe->bytes[6] && rxe->bytes[7] == SNT__WIRE_GSI_QPN;

	return is_mad ? rxe->bytes + MAD_AT : NULL;
}

static void kernel_messages_go_round(void **state)
{
	unsigned seen[7][SNT__CM_KINDS] = { 0 };

	(void)state;
	for (size_t i = 0; i < RXE_PACKETS; i++) {
		struct rxe_packet rxe = rxe_packet(i);
		const uint8_t *mad = mad_of(&rxe);
		struct snt__cm_message message;
		uint8_t again[SNT__CM_MAD_SIZE];

		if (!mad)
			continue;
		assert_int_equal(snt__cm_decode(mad, &message), 0);
		memset(again, 0xa5, sizeof(again));
		snt__cm_encode(&message, again);
		assert_memory_equal(again, mad, sizeof(again));
		seen[rxe.version][message.kind - SNT__CM_REQ]++;
	}
	/* The kernel sends an MRA only if it is asked twice. */
	for (unsigned kind = SNT__CM_REQ; kind <= SNT__CM_DREP; kind++) {
		assert_true(seen[4][kind - SNT__CM_REQ] || kind == SNT__CM_MRA);
		assert_true(seen[6][kind - SNT__CM_REQ] || kind == SNT__CM_MRA);
	}
}

/* The n-th message of a kind, with the packet that it came in. */
static struct snt__cm_message kernel_message(enum snt__cm_kind kind, unsigned version,
					     struct rxe_packet *rxe)
{
	struct snt__cm_message message = { 0 };

	for (size_t i = 0; i < RXE_PACKETS; i++) {
		*rxe = rxe_packet(i);
		if (rxe->version == version && mad_of(rxe) &&
		    !snt__cm_decode(mad_of(rxe), &message) && message.kind == kind)
			return message;
	}
	fail_msg("no message of kind %#x", kind);
	return message;
}

/* As tests/vm/wire_capture.c has made them. */
static void kernel_req(void **state)
{
	(void)state;
	for (unsigned version = 4; version <= 6; version += 2) {
		struct rxe_packet rxe;
		struct snt__cm_message message =
			kernel_message(SNT__CM_REQ, version, &rxe);
		struct snt__cm_addresses addresses;
		const struct snt__cm_req *req = &message.req;
		uint8_t again[SNT__CM_ADDRESSES_SIZE];

		assert_true(snt__cm_service_is_tcp(req->service));
		assert_int_equal(req->service, snt__cm_service(7471));
		assert_int_equal(req->pkey, 0xffff);
		assert_int_equal(req->transport, SNT__CM_TRANSPORT_RC);
		assert_int_equal(req->responder_resources, 1);
		assert_int_equal(req->initiator_depth, 1);
		assert_int_equal(req->retry_count, 1);
		assert_int_equal(req->rnr_retry_count, 1);
		assert_int_equal(req->mtu, 5);
		assert_int_equal(req->hop_limit, 64);
		assert_int_equal(req->remote_timeout, 20);
		assert_int_equal(req->local_timeout, 20);
		assert_int_equal(req->retries_max, 15);
		assert_int_equal(req->ack_timeout, 19);
		assert_false(req->srq);
		assert_memory_equal(req->local_gid, rxe.source, 16);
		assert_memory_equal(req->remote_gid, rxe.target, 16);
		assert_int_equal(message.data_length, SNT__CM_REQ_PRIVATE);
		assert_int_equal(snt__cm_addresses_decode(message.data, &addresses), 0);
		assert_memory_equal(addresses.source, rxe.source, 16);
		assert_memory_equal(addresses.target, rxe.target, 16);
		snt__cm_addresses_encode(&addresses, again);
		assert_memory_equal(again, message.data, sizeof(again));
		assert_string_equal((const char *)message.data + SNT__CM_ADDRESSES_SIZE,
				    "hello");
	}
}

static void kernel_rep_and_rej(void **state)
{
	struct rxe_packet rxe;
	struct snt__cm_message message = kernel_message(SNT__CM_REP, 4, &rxe);

	(void)state;
	assert_int_equal(message.rep.responder_resources, 1);
	assert_int_equal(message.rep.initiator_depth, 1);
	assert_int_equal(message.rep.rnr_retry_count, 1);
	assert_int_equal(message.rep.ack_delay, 15);
	assert_int_equal(message.data_length, SNT__CM_REP_PRIVATE);
	message = kernel_message(SNT__CM_REJ, 6, &rxe);
	assert_int_equal(message.rej.reason, 28);
	assert_int_equal(message.rej.about, SNT__CM_ABOUT_REQ);
	assert_int_equal(message.rej.info_length, 0);
	assert_int_equal(message.data_length, SNT__CM_REJ_PRIVATE);
	assert_string_equal((const char *)message.data, "no");
}

/* Every bit of every field has its own place. */
static void fields_do_not_overlap(void **state)
{
	uint64_t random = 7;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t mad[SNT__CM_MAD_SIZE], first[SNT__CM_MAD_SIZE],
			second[SNT__CM_MAD_SIZE];
		struct snt__cm_message message, again;

		for (unsigned k = 0; k < sizeof(mad); k++)
			mad[k] = (uint8_t)random_next(&random);
		memcpy(mad, "\1\7\2\3", 4);
		mad[16] = 0;
		mad[17] = SNT__CM_REQ + random_below(&random, SNT__CM_KINDS);
		if (snt__cm_decode(mad, &message)) {
			assert_int_equal(mad[17], SNT__CM_REJ);
			assert_true(mad[24 + 9] >> 1 > SNT__CM_REJ_INFO);
			continue;
		}
		snt__cm_encode(&message, first);
		assert_int_equal(snt__cm_decode(first, &again), 0);
		snt__cm_encode(&again, second);
		assert_memory_equal(first, second, sizeof(first));
		/* What is not reserved is as it was. */
		assert_memory_equal(first + 8, mad + 8, 10);
		assert_memory_equal(first + 24, mad + 24, 4);
		if (message.kind != SNT__CM_REQ)
			assert_memory_equal(first + 28, mad + 28, 4);
		assert_memory_equal(message.data, first + (message.data - mad),
				    message.data_length);
	}
}

static void mra_and_info(void **state)
{
	struct snt__cm_message message = { .kind = SNT__CM_MRA,
					   .mra = { .about = SNT__CM_ABOUT_REP,
						    .timeout = 24 } };
	uint8_t mad[SNT__CM_MAD_SIZE];

	(void)state;
	snt__cm_encode(&message, mad);
	assert_int_equal(mad[24 + 8], 1 << 6);
	assert_int_equal(mad[24 + 9], 24 << 3);
	message = (struct snt__cm_message){ .kind = SNT__CM_REJ };
	message.rej.info = (const uint8_t *)"abcdefgh";
	message.rej.info_length = 8;
	message.rej.about = SNT__CM_ABOUT_OTHER;
	snt__cm_encode(&message, mad);
	assert_int_equal(mad[24 + 8], 2 << 6);
	assert_int_equal(mad[24 + 9], 8 << 1);
	assert_memory_equal(mad + 24 + 12, "abcdefgh\0", 9);
	assert_int_equal(snt__cm_decode(mad, &message), 0);
	assert_ptr_equal(message.rej.info, mad + 24 + 12);
}

static void too_much_is_cut_off(void **state)
{
	uint8_t mad[SNT__CM_MAD_SIZE], long_data[400];
	struct snt__cm_message message = { .kind = SNT__CM_RTU,
					   .data = long_data,
					   .data_length = sizeof(long_data) };

	(void)state;
	memset(long_data, 0x5a, sizeof(long_data));
	for (unsigned kind = SNT__CM_REQ; kind <= SNT__CM_DREP; kind++) {
		struct snt__cm_message again;

		memset(&message.req, 0, sizeof(message.req));
		message.kind = kind;
		if (kind == SNT__CM_REJ) {
			message.rej.info = long_data;
			message.rej.info_length = 200;
		}
		snt__cm_encode(&message, mad);
		assert_int_equal(mad[255], 0x5a);
		assert_int_equal(snt__cm_decode(mad, &again), 0);
		assert_int_equal(again.data_length, snt__cm_data_size(kind));
		assert_ptr_equal(again.data + again.data_length, mad + sizeof(mad));
	}
}

static void garbage_is_not_a_message(void **state)
{
	struct snt__cm_message message = { .kind = SNT__CM_RTU };
	uint8_t mad[SNT__CM_MAD_SIZE];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		snt__cm_encode(&message, mad);
		mad[i] ^= 0x80;
		assert_int_equal(snt__cm_decode(mad, &message), -EPROTONOSUPPORT);
	}
	for (unsigned attribute = 0; attribute < 0x200; attribute++) {
		bool known = attribute >= SNT__CM_REQ && attribute <= SNT__CM_DREP;

		message = (struct snt__cm_message){ .kind = SNT__CM_RTU };
		snt__cm_encode(&message, mad);
		mad[16] = attribute >> 8;
		mad[17] = (uint8_t)attribute;
		assert_int_equal(snt__cm_decode(mad, &message),
				 known ? 0 : -EOPNOTSUPP);
	}
	message = (struct snt__cm_message){ .kind = SNT__CM_REJ };
	snt__cm_encode(&message, mad);
	mad[24 + 9] = (SNT__CM_REJ_INFO + 1) << 1;
	assert_int_equal(snt__cm_decode(mad, &message), -EBADMSG);
}

static void addresses_of_other_kinds(void **state)
{
	uint8_t bytes[SNT__CM_ADDRESSES_SIZE] = { 0 };
	struct snt__cm_addresses addresses;

	(void)state;
	for (unsigned i = 0; i < 256; i++) {
		bool known = i >> 4 == 4 || i >> 4 == 6;

		bytes[1] = (uint8_t)i;
		assert_int_equal(snt__cm_addresses_decode(bytes, &addresses),
				 known ? 0 : -EPROTONOSUPPORT);
	}
	bytes[0] = 1;
	bytes[1] = 0x40;
	assert_int_equal(snt__cm_addresses_decode(bytes, &addresses), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_messages_go_round),
		cmocka_unit_test(kernel_req),
		cmocka_unit_test(kernel_rep_and_rej),
		cmocka_unit_test(fields_do_not_overlap),
		cmocka_unit_test(mra_and_info),
		cmocka_unit_test(too_much_is_cut_off),
		cmocka_unit_test(garbage_is_not_a_message),
		cmocka_unit_test(addresses_of_other_kinds),
	};

	return cmocka_run_group_tests_name("cm_wire", tests, NULL, NULL);
}
