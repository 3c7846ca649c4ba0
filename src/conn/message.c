/* SPDX-License-Identifier: MIT */
/* Messages as bytes. All numbers are big-endian; reserved bytes are 0. */
#include "conn/message.h"

#include <string.h>

#include "util/bytes.h"

#define MAGIC	      0x534e5400u /* "SNT", version */
#define DEVICE_SIZE   22
#define PROBE_QP_SIZE 10
#define OFFER_FIXED   18
#define BITS_24	      0xffffff

_Static_assert(SNT__HEADER_SIZE + OFFER_FIXED + SNT_DEVICES_MAX * DEVICE_SIZE +
			       SNT__NAME_MAX + SNT__DATA_MAX + SNT__TAG_SIZE <=
		       SNT__MESSAGE_MAX,
	       "the longest OFFER fits");
_Static_assert(SNT__HEADER_SIZE + 4 + 2 * SNT_LANES_MAX + SNT_CARD_PACKED_MAX +
			       SNT__TAG_SIZE <=
		       SNT__MESSAGE_MAX,
	       "the longest PLAN fits");

static bool is_mtu(uint32_t mtu)
{
	return mtu >= 256 && mtu <= 4096 && !(mtu & (mtu - 1));
}

/*
 * The header
 */

void snt__header_pack(const struct snt__header *header, uint8_t *at)
{
	snt__put32(at, MAGIC | header->version);
	at[4] = header->type;
	at[5] = header->tagged;
	snt__put16(at + 6, header->length);
	snt__put64(at + 8, header->session);
}

const char *snt__header_unpack(const uint8_t *at, size_t length,
			       struct snt__header *out)
{
	struct snt__header header;

	if (length < SNT__HEADER_SIZE)
		return "it is shorter than a header";
	if ((snt__get32(at) & ~0xffu) != MAGIC)
		return "it does not begin like a message of sennit's";
	header = (struct snt__header){
		.version = at[3],
		.type = at[4],
		.tagged = at[5],
		.length = snt__get16(at + 6),
		.session = snt__get64(at + 8),
	};
	if (at[5] > 1)
		return "it has unknown flags";
	if (!header.type || header.type >= SNT__MESSAGE_TYPES)
		return "it is of an unknown type";
	if (snt__message_size(&header) > SNT__MESSAGE_MAX)
		return "it is longer than any message";
	*out = header;
	return NULL;
}

/*
 * HELLO and WELCOME: u8 version, u8 secret, u16 zero, u64 identity, u8[32] nonce
 */

#define HELLO_SIZE (12 + SNT__NONCE_SIZE)

size_t snt__hello_pack(const struct snt__hello *hello, uint8_t *at)
{
	at[0] = hello->version;
	at[1] = hello->secret;
	snt__put16(at + 2, 0);
	snt__put64(at + 4, hello->identity);
	memcpy(at + 12, hello->nonce, SNT__NONCE_SIZE);
	return HELLO_SIZE;
}

const char *snt__hello_unpack(const uint8_t *at, size_t length, struct snt__hello *out)
{
	if (length != HELLO_SIZE)
		return "its length is wrong";
	if (at[1] > 1 || snt__get16(at + 2))
		return "reserved bytes are not 0";
	if (!at[0] || !snt__get64(at + 4))
		return "version or identity is 0";
	*out = (struct snt__hello){
		.version = at[0],
		.secret = at[1],
		.identity = snt__get64(at + 4),
	};
	memcpy(out->nonce, at + 12, SNT__NONCE_SIZE);
	return NULL;
}

/*
 * OFFER and ANSWER:
 *
 *	0  u8  scheme      4  u32 devices that may be used   12 u16 length of data
 *	1  u8  flags       8  u16 MTU                        14 u32 detection time, ms
 *	2  u8  lanes       10 u8  length of the name         18 devices, name, data
 *	3  u8  devices     11 u8  meets
 *
 * A device: u8[16] GID, u16 LID, u8 link, u8 GID type, u16 MTU
 */

static size_t pack_device(const struct snt__offer_device *device, uint8_t *at)
{
	memcpy(at, device->address.gid, 16);
	snt__put16(at + 16, device->address.lid);
	at[18] = device->address.link;
	at[19] = device->address.gid_type;
	snt__put16(at + 20, device->mtu);
	return DEVICE_SIZE;
}

size_t snt__offer_pack(const struct snt__offer *offer, uint8_t *at)
{
	size_t name_length = strnlen(offer->name, SNT__NAME_MAX - 1);
	uint8_t *to = at + OFFER_FIXED;

	at[0] = offer->scheme;
	at[1] = offer->flags;
	at[2] = offer->lanes;
	at[3] = offer->device_count;
	snt__put32(at + 4, offer->devices);
	snt__put16(at + 8, offer->mtu);
	at[10] = (uint8_t)name_length;
	at[11] = offer->meets;
	snt__put16(at + 12, offer->data_length);
	snt__put32(at + 14, offer->detect_ms);
	for (unsigned i = 0; i < offer->device_count; i++)
		to += pack_device(&offer->device[i], to);
	memcpy(to, offer->name, name_length);
	to += name_length;
	memcpy(to, offer->data, offer->data_length);
	return (size_t)(to + offer->data_length - at);
}

static const char *unpack_device(const uint8_t *at, struct snt__offer_device *out)
{
	static const uint8_t no_gid[16];

	memcpy(out->address.gid, at, 16);
	out->address.lid = snt__get16(at + 16);
	out->address.link = at[18];
	out->address.gid_type = at[19];
	out->mtu = snt__get16(at + 20);
	if (out->address.link > SNT_LINK_ETHERNET ||
	    out->address.gid_type > SNT_GID_ROCE_V2)
		return "a device is of an unknown kind";
	if (out->address.link == SNT_LINK_ETHERNET && !memcmp(at, no_gid, 16))
		return "a device has no GID";
	return is_mtu(out->mtu) ? NULL : "a device's MTU is none";
}

static const char *unpack_offer_fixed(const uint8_t *at, struct snt__offer *out)
{
	out->scheme = at[0];
	out->flags = at[1];
	out->lanes = at[2];
	out->device_count = at[3];
	out->devices = snt__get32(at + 4);
	out->mtu = snt__get16(at + 8);
	out->data_length = snt__get16(at + 12);
	out->detect_ms = snt__get32(at + 14);
	out->meets = at[11];
	if (out->scheme != SNT_SCHEME_SPRAY && out->scheme != SNT_SCHEME_DQPLB)
		return "the scheme is unknown";
	if (out->flags & ~(SNT_QP_PASS_THROUGH | SNT_QP_NOTIFY_LENGTH))
		return "flags are unknown";
	if (out->lanes > 128)
		return "there are too many lanes";
	if (!out->device_count || out->device_count > SNT_DEVICES_MAX)
		return "the number of devices is out of range";
	if (!out->devices ||
	    (out->device_count < 32 && out->devices >> out->device_count))
		return "it names devices that do not exist";
	if (!is_mtu(out->mtu))
		return "the MTU is none";
	if (at[10] >= SNT__NAME_MAX || out->data_length > SNT__DATA_MAX)
		return "name or data are too long";
	if (at[11] > 1 || (at[11] && !at[10]))
		return "a meeting has no name";
	return out->detect_ms ? NULL : "the detection time is 0";
}

const char *snt__offer_unpack(const uint8_t *at, size_t length, struct snt__offer *out)
{
	struct snt__offer offer = { 0 };
	const uint8_t *from = at + OFFER_FIXED;
	const char *fault;

	if (length < OFFER_FIXED)
		return "it is too short";
	fault = unpack_offer_fixed(at, &offer);
	if (fault)
		return fault;
	if (length != (size_t)OFFER_FIXED + offer.device_count * DEVICE_SIZE + at[10] +
			      offer.data_length)
		return "its length is wrong";
	for (unsigned i = 0; i < offer.device_count; i++, from += DEVICE_SIZE) {
		fault = unpack_device(from, &offer.device[i]);
		if (fault)
			return fault;
	}
	memcpy(offer.name, from, at[10]);
	if (strlen(offer.name) != at[10])
		return "there is a NUL in the name";
	memcpy(offer.data, from + at[10], offer.data_length);
	*out = offer;
	return NULL;
}

/*
 * PROBE, PROBING and PROBED: u8 round, u8 count, u16 MTU, and for each
 * u8 device, u8 remote, u8 verdict, u8 zero, u24 QP number, u24 PSN
 */

size_t snt__probe_pack(const struct snt__probe *probe, uint8_t *at)
{
	uint8_t *to = at + 4;

	at[0] = probe->round;
	at[1] = probe->count;
	snt__put16(at + 2, probe->mtu);
	for (unsigned i = 0; i < probe->count; i++, to += PROBE_QP_SIZE) {
		to[0] = probe->probe_qp[i].device;
		to[1] = probe->probe_qp[i].remote;
		to[2] = probe->probe_qp[i].verdict;
		to[3] = 0;
		snt__put24(to + 4, probe->probe_qp[i].qp_num);
		snt__put24(to + 7, probe->probe_qp[i].psn);
	}
	return (size_t)(to - at);
}

const char *snt__probe_unpack(const uint8_t *at, size_t length, struct snt__probe *out)
{
	const uint8_t *from = at + 4;

	if (length < 4 || at[1] > SNT__PAIRS_MAX || !at[1] ||
	    length != 4u + at[1] * PROBE_QP_SIZE)
		return "its length is wrong";
	*out = (struct snt__probe){ .round = at[0],
				    .count = at[1],
				    .mtu = snt__get16(at + 2) };
	if (!is_mtu(out->mtu))
		return "the MTU is none";
	for (unsigned i = 0; i < out->count; i++, from += PROBE_QP_SIZE) {
		struct snt__probe_qp *probe_qp = &out->probe_qp[i];

		*probe_qp = (struct snt__probe_qp){
			.device = from[0],
			.remote = from[1],
			.verdict = from[2],
			.qp_num = snt__get24(from + 4),
			.psn = snt__get24(from + 7),
		};
		if (probe_qp->device >= SNT_DEVICES_MAX ||
		    probe_qp->remote >= SNT_DEVICES_MAX)
			return "a device is out of range";
		if (probe_qp->verdict >= SNT__VERDICTS || from[3])
			return "a verdict is unknown";
	}
	return NULL;
}

/*
 * PLAN: u16 MTU, u8 data lanes, u8 lanes, and for each u8 device of the sender's, u8
 * device of the receiver's; then the card
 */

size_t snt__plan_pack(const struct snt__plan *plan, uint8_t *at)
{
	snt__put16(at, plan->mtu);
	at[2] = plan->data_lanes;
	at[3] = plan->lane_count;
	for (unsigned i = 0; i < plan->lane_count; i++) {
		at[4 + 2 * i] = plan->lane[i].local;
		at[5 + 2 * i] = plan->lane[i].remote;
	}
	return 4u + 2 * plan->lane_count;
}

const char *snt__plan_unpack(const uint8_t *at, size_t length, struct snt__plan *out,
			     size_t *rest_out)
{
	struct snt__plan plan = { 0 };

	if (length < 4 || at[3] > SNT_LANES_MAX || length < 4u + 2 * at[3])
		return "it is too short";
	plan.mtu = snt__get16(at);
	plan.data_lanes = at[2];
	plan.lane_count = at[3];
	if (!is_mtu(plan.mtu))
		return "the MTU is none";
	if (!plan.data_lanes || plan.data_lanes > plan.lane_count)
		return "the number of lanes is out of range";
	for (unsigned i = 0; i < plan.lane_count; i++) {
		plan.lane[i] = (struct snt__pair){ at[4 + 2 * i], at[5 + 2 * i] };
		if (plan.lane[i].local >= SNT_DEVICES_MAX ||
		    plan.lane[i].remote >= SNT_DEVICES_MAX)
			return "a device is out of range";
	}
	*out = plan;
	*rest_out = 4u + 2 * plan.lane_count;
	return NULL;
}

/*
 * END: u8 code, u8 length of the text, u16 length of the data, text, data
 */

size_t snt__end_pack(const struct snt__end *end, uint8_t *at)
{
	at[0] = end->code;
	at[1] = end->text_length;
	snt__put16(at + 2, end->data_length);
	memcpy(at + 4, end->text, end->text_length);
	memcpy(at + 4 + end->text_length, end->data, end->data_length);
	return 4u + end->text_length + end->data_length;
}

/* The text is shown to people, perhaps on a terminal. */
static bool is_printable_text(const uint8_t *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (text[i] < 0x20 || text[i] > 0x7e)
			return false;
	return true;
}

const char *snt__end_unpack(const uint8_t *at, size_t length, struct snt__end *out)
{
	struct snt__end end = { 0 };

	if (length < 4)
		return "it is too short";
	end.code = at[0];
	end.text_length = at[1];
	end.data_length = snt__get16(at + 2);
	if (!end.code || end.code >= SNT__END_CODES)
		return "its code is unknown";
	if (end.text_length > SNT__END_TEXT_MAX || end.data_length > SNT__DATA_MAX ||
	    length != 4u + end.text_length + end.data_length)
		return "its length is wrong";
	if (!is_printable_text(at + 4, end.text_length))
		return "its text is not printable";
	memcpy(end.text, at + 4, end.text_length);
	memcpy(end.data, at + 4 + end.text_length, end.data_length);
	*out = end;
	return NULL;
}

size_t snt__last_word(enum snt__end_code code, const char *text, uint8_t *bytes)
{
	struct snt__end end = { .code = (uint8_t)code };
	struct snt__header header = { .version = SNT__PROTOCOL_VERSION,
				      .type = SNT__MESSAGE_END };

	end.text_length = (uint8_t)strnlen(text, SNT__END_TEXT_MAX);
	memcpy(end.text, text, end.text_length);
	header.length = (uint16_t)snt__end_pack(&end, bytes + SNT__HEADER_SIZE);
	snt__header_pack(&header, bytes);
	return snt__message_size(&header);
}

/*
 * Words
 */

const char *snt__message_name(unsigned type)
{
	static const char *const names[SNT__MESSAGE_TYPES] = {
		"?",	  "HELLO", "WELCOME", "OFFER", "ANSWER", "PROBE", "PROBING",
		"PROBED", "PLAN",  "CARD",    "READY", "PING",	 "BYE",	  "END",
	};

	return type < SNT__MESSAGE_TYPES ? names[type] : names[0];
}

const char *snt__verdict_text(unsigned verdict)
{
	static const char *const texts[SNT__VERDICTS] = {
		"not tried",
		"works",
		"nothing comes through",
		"short messages come through, but none as long as the MTU",
		"messages come through, but no empty ones",
		"works in one direction only",
		"no QP could be made for it",
		"their addresses are of different families",
	};

	return verdict < SNT__VERDICTS ? texts[verdict] : "?";
}
