/* SPDX-License-Identifier: MIT */
#ifndef CONN_ENDS_H
#define CONN_ENDS_H

#include <stdio.h>
#include <string.h>

#include "conn/handshake.h"

/* Handshakes with made-up devices, QPs and cards, for tests of the engine alone. */

#define ENDS_DEADLINE UINT64_C(1000000000)

static const char ends_secret[] = "correct horse battery staple";

static inline struct snt__offer ends_offer(unsigned end, unsigned devices)
{
	struct snt__offer offer = {
		.scheme = SNT_SCHEME_SPRAY,
		.lanes = 2,
		.device_count = (uint8_t)devices,
		.devices = (uint32_t)((UINT64_C(1) << devices) - 1),
		.mtu = 4096,
		.detect_ms = end ? 4000 : 5000,
		.data_length = 3,
		.data = { 'e', 'n', (uint8_t)('0' + end) },
	};

	for (unsigned i = 0; i < devices; i++) {
		struct snt__offer_device *device = &offer.device[i];

		device->mtu = 4096;
		device->address.link = SNT_LINK_ETHERNET;
		device->address.gid_type = SNT_GID_ROCE_V2;
		device->address.gid[10] = device->address.gid[11] = 0xff;
		device->address.gid[12] = 10;
		device->address.gid[14] = (uint8_t)i;
		device->address.gid[15] = (uint8_t)(end + 1);
	}
	return offer;
}

/* @salt: different connections have different nonces and identities */
static inline void ends_init(struct snt__handshake *hs, unsigned end, unsigned salt,
			     const struct snt__offer *offer, const char *secret)
{
	uint8_t nonce[SNT__NONCE_SIZE];

	memset(nonce, (int)(salt * 2 + end + 1), sizeof(nonce));
	nonce[1] = (uint8_t)~nonce[1];
	snt__handshake_init(hs, &(struct snt__handshake_opts){
					.connects = end == 0,
					.identity = 100 + salt * 2 + end,
					.nonce = nonce,
					.offer = end == 0 ? offer : NULL,
					.secret = secret,
					.secret_length = secret ? strlen(secret) : 0,
					.deadline = ENDS_DEADLINE,
				});
}

static inline void ends_probe_qps(struct snt__handshake *hs, uint8_t verdict)
{
	struct snt__probe_qp probe_qp[SNT__PAIRS_MAX] = { 0 };

	for (unsigned i = 0; i < hs->probe.count; i++) {
		probe_qp[i].verdict = verdict;
		probe_qp[i].qp_num = 17 + i + (hs->connects ? 0 : 1000);
		probe_qp[i].psn = 5 * i;
	}
	snt__handshake_probe_qps(hs, probe_qp);
}

static inline void ends_probed(struct snt__handshake *hs, uint8_t verdict)
{
	uint8_t verdicts[SNT__PAIRS_MAX];

	memset(verdicts, verdict, sizeof(verdicts));
	snt__handshake_probed(hs, verdicts);
}

static inline struct snt_card ends_card(const struct snt__handshake *hs)
{
	struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = hs->connects ? 7 : 8,
		.generation = hs->hello.identity,
		.scheme = hs->ours.scheme,
		.mtu = hs->plan.mtu,
		.read_depth = 1,
		.lane_depth = 16,
		.recv_depth = 16,
		.window = hs->ours.scheme == SNT_SCHEME_DQPLB ? 16 : 0,
		.fragment_size = 4096,
		.device_count = hs->ours.device_count,
		.data_lanes = hs->plan.data_lanes,
		.lane_count = hs->plan.lane_count,
		.flags = hs->plan.lane_count == 1 ? SNT_QP_PASS_THROUGH : 0,
	};

	for (unsigned i = 0; i < card.device_count; i++)
		card.device[i] = hs->ours.device[i].address;
	for (unsigned i = 0; i < card.lane_count; i++)
		card.lane[i] =
			(struct snt_card_lane){ .qp_num = 100 + i,
						.device = hs->plan.lane[i].local };
	return card;
}

/* Everything works, and the program accepts. */
static inline enum snt__handshake_action ends_answer(struct snt__handshake *hs,
						     const struct snt__offer *offer)
{
	enum snt__handshake_action action = snt__handshake_action(hs);
	struct snt_card card;

	switch (action) {
	case SNT__DO_ASK:
		snt__handshake_accept(hs, offer);
		break;
	case SNT__DO_PROBE_QPS:
		ends_probe_qps(hs, SNT__VERDICT_NONE);
		if (!hs->connects)
			ends_probed(hs, SNT__VERDICT_GOOD);
		break;
	case SNT__DO_PROBE:
		ends_probed(hs, SNT__VERDICT_GOOD);
		break;
	case SNT__DO_MAKE:
		card = ends_card(hs);
		snt__handshake_card(hs, &card);
		break;
	case SNT__DO_CONNECT:
		snt__handshake_connected(hs, 0);
		break;
	default:
		break;
	}
	return action;
}

/* As bytes that have no gaps. */
static inline bool ends_same_card(const struct snt_card *a, const struct snt_card *b)
{
	static uint8_t packed[2][SNT_CARD_PACKED_MAX];
	ssize_t length = snt_card_pack(a, packed[0], sizeof(packed[0]));

	return length > 0 && snt_card_pack(b, packed[1], sizeof(packed[1])) == length &&
	       !memcmp(packed[0], packed[1], (size_t)length);
}

/* What is wrong with two ends that are both up, or NULL. */
static inline const char *ends_fault(const struct snt__handshake *a,
				     const struct snt__handshake *b)
{
	struct snt_card card;

	if (a->session != b->session)
		return "two sessions";
	if (a->hello.identity != b->peer_hello.identity ||
	    b->hello.identity != a->peer_hello.identity)
		return "one end has another identity than its peer saw";
	if (a->plan.mtu != b->plan.mtu || a->plan.lane_count != b->plan.lane_count ||
	    a->plan.data_lanes != b->plan.data_lanes)
		return "two plans";
	for (unsigned i = 0; i < a->plan.lane_count; i++)
		if (a->plan.lane[i].local != b->plan.lane[i].remote ||
		    a->plan.lane[i].remote != b->plan.lane[i].local)
			return "lanes that do not meet";
	if (a->ping_interval != b->ping_interval)
		return "two detection times";
	card = ends_card(a);
	if (!ends_same_card(&card, &b->peer_card))
		return "the first one's card did not arrive";
	card = ends_card(b);
	if (!ends_same_card(&card, &a->peer_card))
		return "the second one's card did not arrive";
	if (a->keyed != b->keyed || a->proven != a->keyed || b->proven != b->keyed)
		return "a secret that was not proved";
	return NULL;
}

#endif
