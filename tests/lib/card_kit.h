/* SPDX-License-Identifier: MIT */
#ifndef CARD_KIT_H
#define CARD_KIT_H

/* Cards to test with, and what it is for one to be the same as another. */
#include "lib/test.h"

#include <sennit/card.h>
#include <sennit/device.h>

#include "vqp/card.h"

static const uint8_t gid_ipv4[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };

static inline struct snt_card sample(unsigned device_count, unsigned lane_count)
{
	struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = 0x0a0b0c,
		.generation = 0xfedcba9876543210,
		.epoch = 0x01020304,
		.scheme = SNT_SCHEME_SPRAY,
		.flags = lane_count > 1 ? 0 : SNT_QP_PASS_THROUGH,
		.read_depth = 16,
		.mtu = 4096,
		.lane_depth = 128,
		.recv_depth = 256,
		.fragment_size = 1 << 20,
		.device_count = device_count,
		.data_lanes = lane_count > 1 ? lane_count - 1 : 1,
		.lane_count = lane_count,
	};

	for (unsigned i = 0; i < device_count; i++) {
		memcpy(card.device[i].gid, gid_ipv4, sizeof(gid_ipv4));
		card.device[i].gid[15] += i;
		card.device[i].link = SNT_LINK_ETHERNET;
		card.device[i].gid_type = SNT_GID_ROCE_V2;
	}
	for (unsigned i = 0; i < lane_count; i++) {
		card.lane[i].qp_num = 0x123400 + i;
		card.lane[i].psn = 0xabcd00 + i;
		card.lane[i].device = i % device_count;
	}
	return card;
}

static inline struct snt_card sample_with_mailbox(unsigned device_count,
						  unsigned lane_count)
{
	struct snt_card card = sample(device_count, lane_count);

	card.flags |= SNT_QP_NOTIFY_LENGTH;
	card.mailbox_addr = 0x00007f1234567890;
	card.mailbox_slots = 512;
	for (unsigned i = 0; i < device_count; i++)
		card.device[i].mailbox_key = 0xc0ffee00 + i;
	return card;
}

/* The most of everything, with what the sample has not. */
static inline struct snt_card largest(void)
{
	struct snt_card card = sample(SNT_DEVICES_MAX, SNT_LANES_MAX);

	card.qp_num = 0xffffff;
	card.generation = UINT64_MAX;
	card.epoch = UINT32_MAX;
	card.scheme = SNT_SCHEME_DQPLB;
	card.read_depth = 255;
	card.lane_depth = 65536;
	card.recv_depth = 65536;
	card.window = 1 << 23;
	card.fragment_size = UINT64_C(1) << 31;
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++) {
		memset(card.device[i].gid, 0xfe, sizeof(card.device[i].gid));
		card.device[i].lid = 0xffff;
		card.device[i].link = SNT_LINK_INFINIBAND;
		card.device[i].gid_type = SNT_GID_ROCE_V1;
	}
	for (unsigned i = 0; i < SNT_LANES_MAX; i++) {
		card.lane[i].qp_num = 0xffffff - i;
		card.lane[i].psn = 0xffffff;
	}
	return card;
}

/* The longest card, whose mailbox ends with the address space. */
static inline struct snt_card longest(void)
{
	struct snt_card card = largest();

	card.scheme = SNT_SCHEME_SPRAY;
	card.window = 0;
	card.flags |= SNT_QP_NOTIFY_LENGTH;
	card.mailbox_slots = 131072;
	card.mailbox_addr = UINT64_MAX - 131072 * 8 + 1;
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		card.device[i].mailbox_key = UINT32_MAX;
	return card;
}

static inline void assert_same(const struct snt_card *a, const struct snt_card *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->qp_num, b->qp_num);
	assert_true(a->generation == b->generation);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->scheme, b->scheme);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->read_depth, b->read_depth);
	assert_int_equal(a->mtu, b->mtu);
	assert_int_equal(a->lane_depth, b->lane_depth);
	assert_int_equal(a->recv_depth, b->recv_depth);
	assert_int_equal(a->window, b->window);
	assert_int_equal(a->fragment_size, b->fragment_size);
	assert_int_equal(a->device_count, b->device_count);
	assert_int_equal(a->data_lanes, b->data_lanes);
	assert_int_equal(a->lane_count, b->lane_count);
	assert_true(a->mailbox_addr == b->mailbox_addr);
	assert_int_equal(a->mailbox_slots, b->mailbox_slots);
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++) {
		assert_memory_equal(a->device[i].gid, b->device[i].gid, 16);
		assert_int_equal(a->device[i].lid, b->device[i].lid);
		assert_int_equal(a->device[i].link, b->device[i].link);
		assert_int_equal(a->device[i].gid_type, b->device[i].gid_type);
		assert_int_equal(a->device[i].mailbox_key, b->device[i].mailbox_key);
	}
	for (unsigned i = 0; i < SNT_LANES_MAX; i++) {
		assert_int_equal(a->lane[i].qp_num, b->lane[i].qp_num);
		assert_int_equal(a->lane[i].psn, b->lane[i].psn);
		assert_int_equal(a->lane[i].device, b->lane[i].device);
	}
}

/* Into garbage, so that a field which is not written is seen. */
static inline void assert_goes_round(const struct snt_card *card)
{
	static char text[SNT__CARD_JSON_MAX];
	uint8_t packed[SNT_CARD_PACKED_MAX];
	struct snt_card back;
	ssize_t size;

	size = snt_card_pack(card, packed, sizeof(packed));
	assert_success(size);
	memset(&back, 0xa5, sizeof(back));
	assert_success(snt_card_unpack(packed, size, &back));
	assert_same(card, &back);

	size = snt_card_to_json(card, text, sizeof(text));
	assert_success(size);
	assert_int_equal(size, strlen(text));
	memset(&back, 0xa5, sizeof(back));
	assert_success(snt_card_from_json(text, size, &back));
	assert_same(card, &back);
}

#endif
