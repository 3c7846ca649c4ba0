/* SPDX-License-Identifier: MIT */
/*
 * Cards as bytes, and the rules that every card has to pass. All numbers
 * big-endian:
 *
 *	0  u8   version: 2 with SNT_QP_FAILOVER, else 1
 *	1  u8   scheme, SNT_SCHEME_SPRAY or SNT_SCHEME_DQPLB
 *	2  u8   flags, SNT_QP_* bits
 *	3  u8   read depth
 *	4  u32  number of the virtual QP
 *	8  u64  generation
 *	16 u32  epoch
 *	20 u32  MTU
 *	24 u32  lane depth
 *	28 u32  receive depth
 *	32 u32  window
 *	36 u8   device count, 1 to SNT_DEVICES_MAX
 *	37 u8   data lanes, 1 to lane count
 *	38 u8   lane count, 1 to SNT_LANES_MAX
 *	39 u8   zero
 *	40 u64  fragment size
 *	48      the devices, then the lanes, then, with SNT_QP_NOTIFY_LENGTH, the mailbox
 *
 * A device:
 *
 *	0  u8[16] GID
 *	16 u16    LID
 *	18 u8     link, enum snt_link
 *	19 u8     GID type, enum snt_gid_type
 *
 * A lane:
 *
 *	0  u24  QP number
 *	3  u24  first PSN
 *	6  u8   device
 *	7  u8   zero
 *
 * The mailbox:
 *
 *	0  u64  address
 *	8  u32  slots
 *	12 u32  key, for each device
 */
#include "vqp/card.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "util/err.h"

#define HEADER_SIZE 48
#define DEVICE_SIZE 20
#define LANE_SIZE   8
#define BOX_SIZE    12
#define KEY_SIZE    4

#define BITS_24	    0xffffff
#define DEPTH_MAX   65536
#define WINDOW_MAX  (UINT32_C(1) << 23)
#define FLAGS_KNOWN (SNT_QP_PASS_THROUGH | SNT_QP_NOTIFY_LENGTH | SNT_QP_FAILOVER)
#define SLOT_SIZE   8
#define SLOTS_MAX   (2 * DEPTH_MAX) /* the next power of two */

_Static_assert(SNT_DEVICES_MAX <= UINT8_MAX && SNT_LANES_MAX <= UINT8_MAX,
	       "counts fit their bytes");
_Static_assert(SNT_CARD_PACKED_MAX >= HEADER_SIZE + DEVICE_SIZE * SNT_DEVICES_MAX +
					      LANE_SIZE * SNT_LANES_MAX + BOX_SIZE +
					      KEY_SIZE * SNT_DEVICES_MAX,
	       "always suffices, as promised");

/* These checks fail with a sentence that snt__card_fault() passes on. */

static int check_card_range(const char *field, uint64_t value, uint64_t min,
			    uint64_t max)
{
	if (value >= min && value <= max)
		return 0;
	return snt__fail(EINVAL, "%s is %" PRIu64 ", not %" PRIu64 " to %" PRIu64,
			 field, value, min, max);
}

static int check_power(const char *field, uint32_t value)
{
	if (!(value & (value - 1)))
		return 0;
	return snt__fail(EINVAL, "%s is %" PRIu32 ", not a power of two", field, value);
}

/* First, since the other checks rely on the counts. */
static int check_counts(const struct snt_card *card)
{
	int ret;

	ret = check_card_range("device_count", card->device_count, 1, SNT_DEVICES_MAX);
	if (!ret)
		ret = check_card_range("lane_count", card->lane_count, 1,
				       SNT_LANES_MAX);
	if (!ret)
		ret = check_card_range("data_lanes", card->data_lanes, 1,
				       card->lane_count);
	return ret;
}

static bool is_version_known(uint32_t version)
{
	return version == SNT_CARD_VERSION || version == SNT_CARD_VERSION_FAILOVER;
}

static int check_identity(const struct snt_card *card)
{
	if (!is_version_known(card->version))
		return snt__fail(EINVAL, "version is %" PRIu32 ", not %d or %d",
				 card->version, SNT_CARD_VERSION,
				 SNT_CARD_VERSION_FAILOVER);
	if ((card->version == SNT_CARD_VERSION_FAILOVER) !=
	    !!(card->flags & SNT_QP_FAILOVER))
		return snt__fail(EINVAL, "version is %" PRIu32 ", %s SNT_QP_FAILOVER",
				 card->version,
				 card->flags & SNT_QP_FAILOVER ? "with" : "without");
	if (!card->generation)
		return snt__fail(EINVAL, "generation is 0, which is not valid");
	if (card->flags & ~FLAGS_KNOWN)
		return snt__fail(EINVAL, "flags 0x%x are not all known", card->flags);
	return check_card_range("qp_num", card->qp_num, 1, BITS_24);
}

/* A pass-through lane is alone; all others have extra lanes for their scheme. */
static int check_roles(const struct snt_card *card)
{
	bool passes = card->flags & SNT_QP_PASS_THROUGH;

	if (card->flags & SNT_QP_FAILOVER &&
	    (passes || card->flags & SNT_QP_NOTIFY_LENGTH ||
	     card->scheme == SNT_SCHEME_DQPLB))
		return snt__fail(EINVAL, "SNT_QP_FAILOVER is with flags or a scheme "
					 "that it cannot have");
	if (passes && card->lane_count > 1)
		return snt__fail(EINVAL,
				 "there are %" PRIu32
				 " lanes, but SNT_QP_PASS_THROUGH is for one",
				 card->lane_count);
	if (!passes && card->lane_count == card->data_lanes)
		return snt__fail(EINVAL, "there are data lanes only, but no "
					 "SNT_QP_PASS_THROUGH");
	return 0;
}

static int check_window(const struct snt_card *card)
{
	int ret;

	switch (card->scheme) {
	case SNT_SCHEME_SPRAY:
		if (!card->window)
			return 0;
		return snt__fail(EINVAL, "window is %" PRIu32 ", but SPRAY has none",
				 card->window);
	case SNT_SCHEME_DQPLB:
		ret = check_card_range("window", card->window, 1, WINDOW_MAX);
		return ret ? ret : check_power("window", card->window);
	default:
		return snt__fail(EINVAL,
				 "scheme is %u, which is neither SPRAY nor DQPLB",
				 card->scheme);
	}
}

static int check_sizes(const struct snt_card *card)
{
	int ret;

	ret = check_card_range("mtu", card->mtu, 256, 4096);
	if (!ret)
		ret = check_power("mtu", card->mtu);
	if (!ret)
		ret = check_card_range("read_depth", card->read_depth, 1, UINT8_MAX);
	if (!ret)
		ret = check_card_range("lane_depth", card->lane_depth, 1, DEPTH_MAX);
	if (!ret)
		ret = check_card_range("recv_depth", card->recv_depth, 1, DEPTH_MAX);
	if (!ret)
		ret = check_card_range("fragment_size", card->fragment_size,
				       SNT_FRAGMENT_SIZE_MIN, SNT_FRAGMENT_SIZE_MAX);
	if (!ret && card->fragment_size % SNT_FRAGMENT_SIZE_UNIT)
		ret = snt__fail(EINVAL,
				"fragment_size is %" PRIu64 ", not a multiple of %d",
				card->fragment_size, SNT_FRAGMENT_SIZE_UNIT);
	return ret;
}

static bool card_has_mailbox(const struct snt_card *card)
{
	return card->flags & SNT_QP_NOTIFY_LENGTH;
}

static int check_mailbox(const struct snt_card *card)
{
	int ret;

	if (!card_has_mailbox(card)) {
		if (!card->mailbox_addr && !card->mailbox_slots)
			return 0;
		return snt__fail(EINVAL,
				 "there is a mailbox, but no SNT_QP_NOTIFY_LENGTH");
	}
	if (card->scheme != SNT_SCHEME_SPRAY || card->data_lanes == card->lane_count)
		return snt__fail(EINVAL, "there is a mailbox, but no notify lane");
	ret = check_card_range("mailbox_slots", card->mailbox_slots,
			       card->recv_depth + 1, SLOTS_MAX);
	if (!ret)
		ret = check_power("mailbox_slots", card->mailbox_slots);
	if (ret)
		return ret;
	if (card->mailbox_addr % SLOT_SIZE)
		return snt__fail(EINVAL,
				 "mailbox_addr is 0x%" PRIx64 ", not a multiple of %d",
				 card->mailbox_addr, SLOT_SIZE);
	if (card->mailbox_addr > UINT64_MAX - (SLOT_SIZE * card->mailbox_slots - 1))
		return snt__fail(EINVAL,
				 "mailbox_addr is 0x%" PRIx64
				 ", too near to the end for "
				 "%" PRIu32 " slots",
				 card->mailbox_addr, card->mailbox_slots);
	return 0;
}

static int check_card_device(const struct snt_card *card, unsigned index)
{
	static const uint8_t no_gid[sizeof(card->device->gid)];
	const struct snt_card_device *device = &card->device[index];

	if (device->link > SNT_LINK_ETHERNET)
		return snt__fail(EINVAL, "device %u: link is %u, which is not known",
				 index, device->link);
	if (device->gid_type > SNT_GID_ROCE_V2)
		return snt__fail(EINVAL,
				 "device %u: gid_type is %u, which is not known", index,
				 device->gid_type);
	if (device->link == SNT_LINK_ETHERNET &&
	    !memcmp(device->gid, no_gid, sizeof(no_gid)))
		return snt__fail(EINVAL,
				 "device %u: gid is zero, but Ethernet needs one",
				 index);
	return 0;
}

static int check_lane(const struct snt_card *card, unsigned index)
{
	const struct snt_card_lane *lane = &card->lane[index];

	/* QPs 0 and 1 of a port are reserved for management. */
	if (lane->qp_num < 2 || lane->qp_num > BITS_24)
		return snt__fail(EINVAL, "lane %u: qp_num is %" PRIu32 ", not 2 to %d",
				 index, lane->qp_num, BITS_24);
	if (lane->psn > BITS_24)
		return snt__fail(EINVAL, "lane %u: psn is %" PRIu32 ", not 0 to %d",
				 index, lane->psn, BITS_24);
	if (lane->device >= card->device_count)
		return snt__fail(EINVAL,
				 "lane %u: device is %u, but there are %" PRIu32, index,
				 lane->device, card->device_count);
	for (unsigned i = 0; i < index; i++) {
		const struct snt_card_lane *other = &card->lane[i];

		if (other->device == lane->device && other->qp_num == lane->qp_num)
			return snt__fail(EINVAL,
					 "lane %u: qp_num %" PRIu32
					 " of device %u is that of lane %u, too",
					 index, lane->qp_num, lane->device, i);
	}
	return 0;
}

static int check_card(const struct snt_card *card)
{
	int ret;

	ret = check_identity(card);
	if (!ret)
		ret = check_counts(card);
	if (!ret)
		ret = check_roles(card);
	if (!ret)
		ret = check_window(card);
	if (!ret)
		ret = check_sizes(card);
	if (!ret)
		ret = check_mailbox(card);
	for (unsigned i = 0; !ret && i < card->device_count; i++)
		ret = check_card_device(card, i);
	for (unsigned i = 0; !ret && i < card->lane_count; i++)
		ret = check_lane(card, i);
	return ret;
}

const char *snt__card_fault(const struct snt_card *card)
{
	return check_card(card) ? snt_err_text() : NULL;
}

static size_t packed_size(const struct snt_card *card)
{
	size_t size = HEADER_SIZE + DEVICE_SIZE * (size_t)card->device_count +
		      LANE_SIZE * (size_t)card->lane_count;

	if (card_has_mailbox(card))
		size += BOX_SIZE + KEY_SIZE * (size_t)card->device_count;
	return size;
}

/* The next byte to write. The caller has made sure that everything fits. */
struct writer {
	uint8_t *at;
};

static void put_card_number(struct writer *writer, unsigned bytes, uint64_t value)
{
	while (bytes--)
		*writer->at++ = value >> 8 * bytes;
}

static void put_header(struct writer *writer, const struct snt_card *card)
{
	put_card_number(writer, 1, card->version);
	put_card_number(writer, 1, card->scheme);
	put_card_number(writer, 1, card->flags);
	put_card_number(writer, 1, card->read_depth);
	put_card_number(writer, 4, card->qp_num);
	put_card_number(writer, 8, card->generation);
	put_card_number(writer, 4, card->epoch);
	put_card_number(writer, 4, card->mtu);
	put_card_number(writer, 4, card->lane_depth);
	put_card_number(writer, 4, card->recv_depth);
	put_card_number(writer, 4, card->window);
	put_card_number(writer, 1, card->device_count);
	put_card_number(writer, 1, card->data_lanes);
	put_card_number(writer, 1, card->lane_count);
	put_card_number(writer, 1, 0);
	put_card_number(writer, 8, card->fragment_size);
}

static void put_mailbox(struct writer *writer, const struct snt_card *card)
{
	put_card_number(writer, 8, card->mailbox_addr);
	put_card_number(writer, 4, card->mailbox_slots);
	for (unsigned i = 0; i < card->device_count; i++)
		put_card_number(writer, 4, card->device[i].mailbox_key);
}

ssize_t snt_card_pack(const struct snt_card *card, void *buffer, size_t size)
{
	const char *fault = snt__card_fault(card);
	struct writer writer = { buffer };
	size_t need;

	if (fault)
		return snt__fail(EINVAL, "card cannot be packed: %s", fault);
	need = packed_size(card);
	if (size < need)
		return snt__fail(ENOSPC,
				 "this card needs %zu bytes when packed, not %zu", need,
				 size);
	put_header(&writer, card);
	for (unsigned i = 0; i < card->device_count; i++) {
		const struct snt_card_device *device = &card->device[i];

		for (unsigned j = 0; j < sizeof(device->gid); j++)
			put_card_number(&writer, 1, device->gid[j]);
		put_card_number(&writer, 2, device->lid);
		put_card_number(&writer, 1, device->link);
		put_card_number(&writer, 1, device->gid_type);
	}
	for (unsigned i = 0; i < card->lane_count; i++) {
		const struct snt_card_lane *lane = &card->lane[i];

		put_card_number(&writer, 3, lane->qp_num);
		put_card_number(&writer, 3, lane->psn);
		put_card_number(&writer, 1, lane->device);
		put_card_number(&writer, 1, 0);
	}
	if (card_has_mailbox(card))
		put_mailbox(&writer, card);
	return need;
}

/* The bytes left to read. Past the end all bytes are zero and cut_off is set, so that
 * one check after many fields is enough. */
struct reader {
	const uint8_t *at;
	size_t left;
	bool cut_off;
	bool reserved_set;
};

static uint64_t take_card_number(struct reader *reader, unsigned bytes)
{
	uint64_t value = 0;

	if (reader->left < bytes) {
		reader->left = 0;
		reader->cut_off = true;
		return 0;
	}
	reader->left -= bytes;
	while (bytes--)
		value = value << 8 | *reader->at++;
	return value;
}

static void take_zero(struct reader *reader)
{
	if (take_card_number(reader, 1))
		reader->reserved_set = true;
}

static void take_header(struct reader *reader, struct snt_card *card)
{
	card->version = take_card_number(reader, 1);
	card->scheme = take_card_number(reader, 1);
	card->flags = take_card_number(reader, 1);
	card->read_depth = take_card_number(reader, 1);
	card->qp_num = take_card_number(reader, 4);
	card->generation = take_card_number(reader, 8);
	card->epoch = take_card_number(reader, 4);
	card->mtu = take_card_number(reader, 4);
	card->lane_depth = take_card_number(reader, 4);
	card->recv_depth = take_card_number(reader, 4);
	card->window = take_card_number(reader, 4);
	card->device_count = take_card_number(reader, 1);
	card->data_lanes = take_card_number(reader, 1);
	card->lane_count = take_card_number(reader, 1);
	take_zero(reader);
	card->fragment_size = take_card_number(reader, 8);
}

static void take_arrays(struct reader *reader, struct snt_card *card)
{
	for (unsigned i = 0; i < card->device_count; i++) {
		struct snt_card_device *device = &card->device[i];

		for (unsigned j = 0; j < sizeof(device->gid); j++)
			device->gid[j] = take_card_number(reader, 1);
		device->lid = take_card_number(reader, 2);
		device->link = take_card_number(reader, 1);
		device->gid_type = take_card_number(reader, 1);
	}
	for (unsigned i = 0; i < card->lane_count; i++) {
		struct snt_card_lane *lane = &card->lane[i];

		lane->qp_num = take_card_number(reader, 3);
		lane->psn = take_card_number(reader, 3);
		lane->device = take_card_number(reader, 1);
		take_zero(reader);
	}
}

static void take_mailbox(struct reader *reader, struct snt_card *card)
{
	card->mailbox_addr = take_card_number(reader, 8);
	card->mailbox_slots = take_card_number(reader, 4);
	for (unsigned i = 0; i < card->device_count; i++)
		card->device[i].mailbox_key = take_card_number(reader, 4);
}

int snt_card_unpack(const void *buffer, size_t size, struct snt_card *card_out)
{
	struct reader reader = { .at = buffer, .left = size };
	struct snt_card card = { 0 };
	const char *fault;

	if (!size)
		return snt__fail(EBADMSG, "packed card is empty");
	take_header(&reader, &card);
	if (!is_version_known(card.version))
		return snt__fail(EPROTONOSUPPORT,
				 "packed card has version %" PRIu32
				 "; this library reads %d and %d",
				 card.version, SNT_CARD_VERSION,
				 SNT_CARD_VERSION_FAILOVER);
	if (reader.cut_off)
		return snt__fail(EBADMSG, "packed card is cut off after %zu bytes",
				 size);
	if (check_counts(&card))
		return snt__fail(EBADMSG, "packed card refused: %s", snt_err_text());
	if (size != packed_size(&card))
		return snt__fail(EBADMSG,
				 "packed card with %" PRIu32 " devices and %" PRIu32
				 " lanes%s has %zu bytes, not %zu",
				 card.device_count, card.lane_count,
				 card_has_mailbox(&card) ? " and a mailbox" : "", size,
				 packed_size(&card));
	take_arrays(&reader, &card);
	if (card_has_mailbox(&card))
		take_mailbox(&reader, &card);
	fault = reader.reserved_set ? "a reserved byte is set" : snt__card_fault(&card);
	if (fault)
		return snt__fail(EBADMSG, "packed card refused: %s", fault);
	*card_out = card;
	return 0;
}
