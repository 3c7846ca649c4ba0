/* SPDX-License-Identifier: MIT */
#include "dev/soft/icrc.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "dev/soft/crc.h"

#define BTH_SIZE   12
#define LRH_SIZE   8
#define IPV4_SIZE  (LRH_SIZE + 20 + 8)
#define IPV6_SIZE  (LRH_SIZE + 40 + 8)
#define LENGTH_MAX (UINT16_MAX - 20 - 8)

static void put_16(uint8_t *at, uint16_t value)
{
	value = htobe16(value);
	memcpy(at, &value, sizeof(value));
}

static bool is_mapped(const uint8_t gid[16])
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, prefix, sizeof(prefix));
}

/* Fields that routers may change are all ones. */
void snt__icrc_flow_init(struct snt__icrc_flow *flow, const uint8_t source[16],
			 const uint8_t target[16], uint16_t source_port,
			 uint16_t target_port)
{
	uint8_t *ip = flow->bytes + LRH_SIZE, *udp;

	flow->length = 0;
	memset(flow->bytes, 0xff, sizeof(flow->bytes));
	if (is_mapped(source)) {
		flow->size = IPV4_SIZE;
		ip[0] = 0x45;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, source + 12, 4);
		memcpy(ip + 16, target + 12, 4);
	} else {
		flow->size = IPV6_SIZE;
		ip[0] = 0x6f;
		ip[6] = IPPROTO_UDP;
		memcpy(ip + 8, source, 16);
		memcpy(ip + 24, target, 16);
	}
	udp = flow->bytes + flow->size - 8;
	put_16(udp, source_port);
	put_16(udp + 2, target_port);
}

/* The product of two polynomials whose lowest power is in the highest bit. */
static uint32_t multiply_polynomials(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		product ^= b & -(a >> 31);
		b = b >> 1 ^ (0xedb88320 & -(b & 1));
	}
	return product;
}

/*
 * A difference between two messages passes through a CRC as if everything else were
 * zero: each byte that follows multiplies it by x^8. Dividing by that gives the
 * difference as it was `words` * 4 bytes before the end.
 */
static uint32_t pull_back(uint32_t difference, size_t words)
{
	/* x^(-32 * 2^i) */
	static const uint32_t back[14] = {
		0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d, 0x5139de12,
		0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
		0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5,
	};

	for (unsigned i = 0; words; i++, words >>= 1) {
		if (words & 1)
			difference = multiply_polynomials(back[i], difference);
	}
	return difference;
}

/* Everything before the BTH, with an identification of 0. */
static uint32_t header_crc(struct snt__icrc_flow *flow, uint16_t fragment,
			   size_t length)
{
	uint8_t *ip = flow->bytes + LRH_SIZE;

	if (flow->size == IPV4_SIZE) {
		put_16(ip + 2, 20 + 8 + length);
		put_16(ip + 4, 0);
		put_16(ip + 6, fragment);
	} else {
		put_16(ip + 4, 8 + length);
	}
	put_16(flow->bytes + flow->size - 4, 8 + length);
	return snt__crc32(0, flow->bytes, flow->size);
}

/* A CRC is linear: an identification adds the sum of what its bits add. */
static uint32_t identification_crc(unsigned identification)
{
	/* By bit, after the rest of the IP header and the UDP header. */
	static const uint32_t of_bit[16] = {
		0x9b73ead4, 0xed96d3e9, 0x005ca193, 0x00b94326, 0x0172864c, 0x02e50c98,
		0x05ca1930, 0x0b943260, 0x81256527, 0xd93bcc0f, 0x69069e5f, 0xd20d3cbe,
		0x7f6b7f3d, 0xfed6fe7a, 0x26dcfab5, 0x4db9f56a,
	};
	uint32_t crc = 0;

	for (; identification; identification &= identification - 1)
		crc ^= of_bit[__builtin_ctz(identification)];
	return crc;
}

/*
 * The ICRC takes the BTH's byte with the congestion bits as all ones. Adding this to
 * the CRC at the beginning of the BTH, four bytes before, gives the same result
 * whatever that byte is on the wire. Mostly the byte is 0.
 */
static inline uint32_t mask_congestion(uint8_t byte)
{
	return byte ? pull_back(byte ^ 0xff, 1) : 0x0f6a70d9;
}

uint32_t snt__icrc_begin(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
			 const uint8_t *bth, size_t length)
{
	uint32_t crc = mask_congestion(bth[4]);

	if (flow->length != length || flow->fragment != ipv4.fragment) {
		flow->crc = header_crc(flow, ipv4.fragment, length);
		flow->fragment = ipv4.fragment;
		flow->length = length;
	}
	if (flow->size == IPV4_SIZE)
		crc ^= identification_crc(ipv4.identification);
	return crc ^ flow->crc;
}

size_t snt__icrc_seal(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
		      const uint8_t header[SNT__WIRE_HEADER_MAX], size_t header_length,
		      const struct iovec *payload, unsigned payload_count,
		      uint8_t trailer_out[SNT__ICRC_TRAILER_MAX])
{
	size_t length = header_length, pad;
	uint32_t crc;

	for (unsigned i = 0; i < payload_count; i++)
		length += payload[i].iov_len;
	pad = snt__wire_pad(length);
	crc = snt__icrc_begin(flow, ipv4, header, length + pad + SNT__ICRC_SIZE);
	crc = snt__crc32(crc, header, header_length);
	for (unsigned i = 0; i < payload_count; i++)
		crc = snt__crc32(crc, payload[i].iov_base, payload[i].iov_len);
	memset(trailer_out, 0, 3);
	crc = htole32(snt__crc32(crc, trailer_out, pad));
	memcpy(trailer_out + pad, &crc, sizeof(crc));
	return pad + sizeof(crc);
}

/* The difference between a packet's ICRC and the correct one. */
static uint32_t icrc_difference(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
				const uint8_t *packet, size_t length)
{
	uint32_t crc = snt__icrc_begin(flow, ipv4, packet, length), icrc;

	crc = snt__crc32(crc, packet, length - SNT__ICRC_SIZE);
	memcpy(&icrc, packet + length - SNT__ICRC_SIZE, sizeof(icrc));
	return crc ^ le32toh(icrc);
}
static bool has_length(size_t length)
{
	return length >= BTH_SIZE + SNT__ICRC_SIZE && length <= LENGTH_MAX;
}

int snt__icrc_check(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
		    const uint8_t *packet, size_t length)
{
	if (!has_length(length) || icrc_difference(flow, ipv4, packet, length))
		return -EBADMSG;
	return 0;
}

/*
 * If only the identification differs from the guess, the difference before it is just
 * its own, and has no other bits. 16 bytes of IP and 8 of UDP follow it.
 */
int snt__icrc_check_any(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 *guess,
			const uint8_t *packet, size_t length)
{
	uint32_t found;

	if (!has_length(length))
		return -EBADMSG;
	found = icrc_difference(flow, *guess, packet, length);
	if (!found)
		return 0;
	if (flow->size != IPV4_SIZE)
		return -EBADMSG;
	found = pull_back(found, (16 + 8 + length - SNT__ICRC_SIZE) / 4);
	if (found > UINT16_MAX)
		return -EBADMSG;
	guess->identification ^= be16toh(htole16(found));
	return 0;
}
