/* SPDX-License-Identifier: MIT */
/* What the simulated fabric is made of: events, links, frames. */
#include "lib/test.h"

#include <unistd.h>

#include "dev/soft/icrc.h"
#include "lib/sim/capture.h"
#include "lib/sim/frame.h"
#include "lib/sim/link.h"
#include "lib/sim/packet.h"
#include "lib/sim/queue.h"
#include "lib/sim/random.h"
#include "lib/sim/trace.h"

#define MILLION 1000000

/*
 * Events
 */

static void events_come_in_order_of_time_then_of_adding(void **state)
{
	struct snt__sim_queue queue = { 0 };
	struct snt__sim_event event, last = { 0 };
	uint64_t dice = 1, added = 0, taken = 0;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		if (added - taken < 5 || snt__sim_random(&dice) % 5 < 3) {
			uint64_t at = last.time + snt__sim_random(&dice) % 100;

			assert_int_equal(snt__sim_queue_add(&queue, at, added % 4,
							    &queue),
					 0);
			added++;
			continue;
		}
		assert_true(snt__sim_queue_take(&queue, &event));
		assert_true(event.time >= last.time);
		if (event.time == last.time && taken)
			assert_true(event.order > last.order);
		assert_int_equal(snt__sim_event_kind(&event), (event.order >> 2) % 4);
		last = event;
		taken++;
	}
	while (snt__sim_queue_take(&queue, &event))
		taken++;
	assert_int_equal(taken, added);
	assert_int_equal(snt__sim_queue_next(&queue), UINT64_MAX);
	snt__sim_queue_free(&queue);
}

static void packets_are_used_again(void **state)
{
	struct snt__sim_pool pool = { 0 };
	struct snt__sim_packet *first = snt__sim_packet_take(&pool), *packet[100];

	(void)state;
	snt__sim_packet_give(&pool, first);
	assert_ptr_equal(snt__sim_packet_take(&pool), first);
	for (int i = 0; i < 100; i++) {
		packet[i] = snt__sim_packet_take(&pool);
		assert_non_null(packet[i]);
		assert_ptr_not_equal(packet[i], i ? packet[i - 1] : first);
	}
	assert_int_equal(pool.taken, 101);
	snt__sim_pool_free(&pool);
}

/*
 * Links
 */

static struct snt__sim_link make_link(struct snt__sim_link_opts opts)
{
	struct snt__sim_link link;

	snt__sim_link_init(&link, &opts, 7);
	return link;
}

static void a_link_without_options_takes_no_time(void **state)
{
	struct snt__sim_link link;
	struct snt__sim_fate fate;

	(void)state;
	snt__sim_link_init(&link, NULL, 1);
	fate = snt__sim_link_carry(&link, 1000, 4096, 1);
	assert_int_equal(fate.drop, SNT__SIM_DROP_NONE);
	assert_int_equal(fate.arrival, 1000);
	assert_int_equal(fate.arrival_copy, UINT64_MAX);
	assert_int_equal(fate.damage, 0);
}

/* No rounding adds up: 7 Mbit/s is not a divisor of anything. */
static void a_link_carries_just_its_bandwidth(void **state)
{
	struct snt__sim_link link =
		make_link((struct snt__sim_link_opts){ .mbps = 7, .delay_ns = 500 });
	uint64_t at = 0;

	(void)state;
	for (int i = 0; i < 7000; i++)
		at = snt__sim_link_carry(&link, 0, 125, 0).arrival;
	assert_int_equal(at, UINT64_C(1000000000) + 500);
}

static void a_full_queue_drops(void **state)
{
	struct snt__sim_link link = make_link(
		(struct snt__sim_link_opts){ .mbps = 8, .queue_bytes = 3000 });
	unsigned taken = 0;

	(void)state;
	for (int i = 0; i < 10; i++)
		taken += !snt__sim_link_carry(&link, 0, 1000, 0).drop;
	assert_int_equal(taken, 3);
	assert_int_equal(snt__sim_link_carry(&link, 999999, 1000, 0).drop,
			 SNT__SIM_DROP_QUEUE);
	assert_int_equal(snt__sim_link_carry(&link, 1000000, 1000, 0).drop, 0);
}

static void a_cut_link_carries_nothing(void **state)
{
	struct snt__sim_link link = make_link((struct snt__sim_link_opts){ 0 });

	(void)state;
	link.cut = true;
	assert_int_equal(snt__sim_link_carry(&link, 5, 100, 0).drop, SNT__SIM_DROP_CUT);
	link.cut = false;
	assert_int_equal(snt__sim_link_carry(&link, 5, 100, 0).drop, 0);
}

static void jitter_keeps_the_order(void **state)
{
	struct snt__sim_link link =
		make_link((struct snt__sim_link_opts){ .jitter_ns = 1000 });
	uint64_t last = 0, spread = 0;

	(void)state;
	for (uint64_t now = 0; now < 100000; now += 10) {
		uint64_t at = snt__sim_link_carry(&link, now, 100, 0).arrival;

		assert_true(at >= last && at >= now && at < now + 1000);
		if (at - now > spread)
			spread = at - now;
		last = at;
	}
	assert_true(spread > 900);
}

/* Counts how often a packet overtakes another of the same flow, and of any. */
static void count_overtaking(struct snt__sim_link *link, unsigned *same, unsigned *any)
{
	uint64_t last[8] = { 0 }, latest = 0;

	*same = *any = 0;
	for (uint64_t i = 0; i < 20000; i++) {
		uint64_t at = snt__sim_link_carry(link, i * 100, 100, i % 8).arrival;

		*same += at < last[i % 8];
		*any += at < latest;
		last[i % 8] = at;
		if (at > latest)
			latest = at;
	}
}

static void reordering_lets_packets_overtake(void **state)
{
	struct snt__sim_link link = make_link(
		(struct snt__sim_link_opts){ .reorder = 50000, .late_ns = 20000 });
	unsigned same, any;

	(void)state;
	count_overtaking(&link, &same, &any);
	assert_true(same > 500);
}

static void mixing_keeps_the_order_of_each_flow_only(void **state)
{
	struct snt__sim_link link =
		make_link((struct snt__sim_link_opts){ .mix_ns = 20000 });
	unsigned same, any;

	(void)state;
	count_overtaking(&link, &same, &any);
	assert_int_equal(same, 0);
	assert_true(any > 5000);
}

/* Of a million: how many had this fate? */
static void faults_come_as_often_as_asked_for(void **state)
{
	struct snt__sim_link link = make_link((struct snt__sim_link_opts){
		.loss = 100000, .duplicate = 20000, .corrupt = 30000, .late_ns = 10 });
	unsigned lost = 0, doubled = 0, damaged = 0;

	(void)state;
	for (int i = 0; i < MILLION; i++) {
		struct snt__sim_fate fate = snt__sim_link_carry(&link, i, 100, 0);

		lost += fate.drop == SNT__SIM_DROP_LOSS;
		doubled += !fate.drop && fate.arrival_copy != UINT64_MAX;
		damaged += !fate.drop && fate.damage;
	}
	assert_in_range(lost, 98000, 102000);
	assert_in_range(doubled, 17000, 19000);
	assert_in_range(damaged, 26000, 28000);
}

/* So that switching a fault off does not change the rest of a run. */
static void one_fault_does_not_move_the_others_dice(void **state)
{
	struct snt__sim_link_opts opts = { .corrupt = 30000, .jitter_ns = 100 };
	struct snt__sim_link one = make_link(opts), two;

	(void)state;
	opts.duplicate = 500000;
	two = make_link(opts);
	for (int i = 0; i < 1000; i++) {
		struct snt__sim_fate a = snt__sim_link_carry(&one, i, 100, 0);
		struct snt__sim_fate b = snt__sim_link_carry(&two, i, 100, 0);

		assert_int_equal(a.damage, b.damage);
		assert_int_equal(a.arrival, b.arrival);
	}
}

/*
 * Frames
 */

static const struct snt__soft_path path_ipv4 = {
	.source = { [10] = 0xff, 0xff, 10, 0, 0, 1 },
	.target = { [10] = 0xff, 0xff, 10, 0, 1, 1 },
	.source_port = 0xc123,
	.traffic_class = 0x68,
	.hop_limit = 64,
};

static const struct snt__soft_path path_ipv6 = {
	.source = { 0xfd, [15] = 1 },
	.target = { 0xfd, [14] = 1, 1 },
	.source_port = 0xc123,
	.flow_label = 0xabcde,
	.traffic_class = 0x68,
	.hop_limit = 64,
};

static uint8_t payload[] = "payload that ends in the middle of a word.";

static size_t write_frame(const struct snt__soft_path *path, uint8_t *bytes)
{
	struct snt__wire_packet fields = {
		.opcode = SNT__WIRE_WRITE_ONLY,
		.flags = SNT__WIRE_ACK_REQUEST | SNT__WIRE_MIGRATED,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = 0x123456,
		.psn = 0xfffffe,
		.reth = { 0x1122334455667788, 0x99aabbcc, sizeof(payload) },
		.payload_length = sizeof(payload),
	};
	struct snt__soft_packet packet = {
		.path = path,
		.payload_length = sizeof(payload),
		.payload_count = 3,
		.payload = { { payload, 5 },
			     { payload + 5, 0 },
			     { payload + 5, sizeof(payload) - 5 } },
	};

	packet.header_length = snt__wire_encode(&fields, packet.header);
	return snt__sim_frame_write(&packet, 0x4321, bytes);
}

static void check_round_trip(const struct snt__soft_path *path, size_t headers)
{
	uint8_t bytes[SNT__SIM_PACKET_MAX];
	size_t length = write_frame(path, bytes);
	struct snt__sim_frame frame;
	struct snt__wire_packet fields;

	assert_int_equal(length, headers + 28 + sizeof(payload) + 1 + 4);
	assert_int_equal(snt__sim_frame_read(bytes, length, &frame), 0);
	assert_memory_equal(frame.path.source, path->source, 16);
	assert_memory_equal(frame.path.target, path->target, 16);
	assert_int_equal(frame.path.source_port, path->source_port);
	assert_int_equal(frame.path.traffic_class, path->traffic_class);
	assert_int_equal(frame.path.hop_limit, path->hop_limit);
	assert_int_equal(frame.path.flow_label, path->flow_label);
	assert_int_equal(snt__wire_decode(frame.bytes, frame.length, &fields), 0);
	assert_int_equal(fields.qpn, 0x123456);
	assert_int_equal(fields.psn, 0xfffffe);
	assert_int_equal(fields.payload_length, sizeof(payload));
	assert_memory_equal(fields.payload, payload, sizeof(payload));
}

static void frames_come_out_as_they_went_in(void **state)
{
	(void)state;
	check_round_trip(&path_ipv4, 28);
	check_round_trip(&path_ipv6, 48);
}

/* What routers may change: traffic class, flow label, hop limit; congestion marks. */
static bool may_change(bool ipv4, size_t byte)
{
	if (ipv4)
		return byte == 28 + 4;
	return byte < 4 || byte == 7 || byte == 48 + 4;
}

static void check_every_bit(const struct snt__soft_path *path, bool ipv4)
{
	uint8_t bytes[SNT__SIM_PACKET_MAX];
	size_t length = write_frame(path, bytes);
	struct snt__sim_frame frame;

	for (size_t i = 0; i < length * 8; i++) {
		int ret;

		bytes[i / 8] ^= 1 << i % 8;
		ret = snt__sim_frame_read(bytes, length, &frame);
		if (!ret && !may_change(ipv4, i / 8))
			fail_msg("bit %zu of byte %zu", i % 8, i / 8);
		bytes[i / 8] ^= 1 << i % 8;
	}
	for (size_t i = 0; i < length; i++)
		assert_int_equal(snt__sim_frame_read(bytes, i, &frame), -EBADMSG);
}

static void every_damaged_bit_is_found(void **state)
{
	(void)state;
	check_every_bit(&path_ipv4, true);
	check_every_bit(&path_ipv6, false);
}

/* Undoes what may have changed on the way: over IPv4 also what its checksum covers,
 * if both changes cancel each other out. */
static void undo_allowed_changes(bool ipv4, const uint8_t *sound, uint8_t *bytes,
				 size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (may_change(ipv4, i) ||
		    (ipv4 && (i == 1 || i == 8 || i == 10 || i == 11)))
			bytes[i] = sound[i];
}

static void damage_never_gets_through(void **state)
{
	const struct snt__soft_path *paths[] = { &path_ipv4, &path_ipv6 };
	uint64_t dice = 3, accepted = 0;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint8_t sound[SNT__SIM_PACKET_MAX], bytes[SNT__SIM_PACKET_MAX];
		size_t length = write_frame(paths[i % 2], sound);
		struct snt__sim_frame frame;

		memcpy(bytes, sound, length);
		snt__sim_damage(bytes, length, snt__sim_random(&dice));
		assert_memory_not_equal(bytes, sound, length);
		if (snt__sim_frame_read(bytes, length, &frame))
			continue;
		accepted++;
		undo_allowed_changes(i % 2 == 0, sound, bytes, length);
		assert_memory_equal(bytes, sound, length);
	}
	assert_in_range(accepted, 100, 20000);
}

static void traces_tell_time_and_bytes_apart(void **state)
{
	uint8_t bytes[21] = { 0 };
	uint64_t hash = snt__sim_trace(0, 5, bytes, 21);

	(void)state;
	assert_int_equal(hash, snt__sim_trace(0, 5, bytes, 21));
	assert_int_not_equal(hash, snt__sim_trace(0, 6, bytes, 21));
	assert_int_not_equal(hash, snt__sim_trace(0, 5, bytes, 20));
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] ^= 1;
		assert_int_not_equal(hash, snt__sim_trace(0, 5, bytes, 21));
		bytes[i] ^= 1;
	}
}

/*
 * Captures
 */

static uint32_t word_at(const uint8_t *file, size_t at)
{
	uint32_t word;

	memcpy(&word, file + at, sizeof(word));
	return word;
}

/* Reads back what was written, block by block. */
static void captures_are_well_formed(void **state)
{
	char path[] = "/tmp/sennit-capture-XXXXXX";
	uint8_t bytes[SNT__SIM_PACKET_MAX], file[8192];
	size_t length = write_frame(&path_ipv4, bytes), size, at = 0;
	struct snt__sim_capture *capture;
	unsigned blocks = 0, packets = 0;
	int fd = mkstemp(path);
	FILE *stream;

	(void)state;
	assert_success(snt__sim_capture_open(path, &capture));
	assert_int_equal(snt__sim_capture_interface(capture, "sim0"), 0);
	assert_int_equal(snt__sim_capture_interface(capture, "sim17"), 1);
	snt__sim_capture_packet(capture, 1, false, 0x123456789abcdef, bytes, length,
				"lost");
	snt__sim_capture_packet(capture, 0, true, 0x123456789abcdff, bytes, length,
				NULL);
	assert_success(snt__sim_capture_close(capture));
	stream = fdopen(fd, "r");
	size = fread(file, 1, sizeof(file), stream);
	fclose(stream);
	unlink(path);
	while (at < size) {
		uint32_t type = word_at(file, at), total = word_at(file, at + 4);

		assert_int_equal(total % 4, 0);
		assert_true(total >= 12 && total <= size - at);
		assert_int_equal(word_at(file, at + total - 4), total);
		assert_int_equal(type, blocks == 0 ? 0x0a0d0d0au : blocks < 3 ? 1 : 6);
		if (type == 6) {
			assert_int_equal(word_at(file, at + 8), 1 - packets);
			assert_int_equal(word_at(file, at + 12), 0x1234567);
			assert_int_equal(word_at(file, at + 20), length);
			assert_memory_equal(file + at + 28, bytes, length);
			packets++;
		}
		blocks++;
		at += total;
	}
	assert_int_equal(packets, 2);
}

static void captures_say_why_they_fail(void **state)
{
	struct snt__sim_capture *capture;

	(void)state;
	assert_error(snt__sim_capture_open("/nowhere/at/all", &capture), ENOENT,
		     "/nowhere/at/all");
	assert_success(snt__sim_capture_open("/dev/full", &capture));
	assert_error(snt__sim_capture_close(capture), ENOSPC, "capture");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_in_order_of_time_then_of_adding),
		cmocka_unit_test(packets_are_used_again),
		cmocka_unit_test(a_link_without_options_takes_no_time),
		cmocka_unit_test(a_link_carries_just_its_bandwidth),
		cmocka_unit_test(a_full_queue_drops),
		cmocka_unit_test(a_cut_link_carries_nothing),
		cmocka_unit_test(jitter_keeps_the_order),
		cmocka_unit_test(reordering_lets_packets_overtake),
		cmocka_unit_test(mixing_keeps_the_order_of_each_flow_only),
		cmocka_unit_test(faults_come_as_often_as_asked_for),
		cmocka_unit_test(one_fault_does_not_move_the_others_dice),
		cmocka_unit_test(frames_come_out_as_they_went_in),
		cmocka_unit_test(every_damaged_bit_is_found),
		cmocka_unit_test(damage_never_gets_through),
		cmocka_unit_test(traces_tell_time_and_bytes_apart),
		cmocka_unit_test(captures_are_well_formed),
		cmocka_unit_test(captures_say_why_they_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
