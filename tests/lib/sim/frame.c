/* SPDX-License-Identifier: MIT */
#include "lib/sim/frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "dev/soft/icrc.h"
#include "util/bytes.h"

#define IPV4_SIZE 20
#define IPV6_SIZE 40
#define UDP_SIZE  8
#define UDP	  17

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

static bool is_ipv4(const uint8_t address[16])
{
	return !memcmp(address, mapped, sizeof(mapped));
}

/* Of a header that includes its own checksum it is 0. */
static uint16_t ipv4_checksum(const uint8_t *header)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < IPV4_SIZE; i += 2)
		sum += snt__get16(header + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

static void write_ipv4(const struct snt__soft_path *path, uint16_t length,
		       uint16_t identification, uint8_t *to)
{
	memset(to, 0, IPV4_SIZE);
	to[0] = 0x45;
	to[1] = path->traffic_class;
	snt__put16(to + 2, length);
	snt__put16(to + 4, identification);
	snt__put16(to + 6, SNT__ICRC_DONT_FRAGMENT);
	to[8] = path->hop_limit;
	to[9] = UDP;
	memcpy(to + 12, path->source + 12, 4);
	memcpy(to + 16, path->target + 12, 4);
	snt__put16(to + 10, ipv4_checksum(to));
}

static void write_ipv6(const struct snt__soft_path *path, uint16_t length, uint8_t *to)
{
	snt__put16(to,
		   0x6000 | path->traffic_class << 4 | (path->flow_label >> 16 & 15));
	snt__put16(to + 2, path->flow_label);
	snt__put16(to + 4, length - IPV6_SIZE);
	to[6] = UDP;
	to[7] = path->hop_limit;
	memcpy(to + 8, path->source, 16);
	memcpy(to + 24, path->target, 16);
}

static void write_udp(const struct snt__soft_path *path, uint16_t length, uint8_t *to)
{
	snt__put16(to, path->source_port);
	snt__put16(to + 2, SNT__WIRE_PORT);
	snt__put16(to + 4, length);
	snt__put16(to + 6, 0); /* the ICRC serves */
}

static size_t write_payload(const struct snt__soft_packet *packet, uint8_t *to)
{
	size_t length = 0;

	for (unsigned i = 0; i < packet->payload_count; i++) {
		if (packet->payload[i].iov_len)
			memcpy(to + length, packet->payload[i].iov_base,
			       packet->payload[i].iov_len);
		length += packet->payload[i].iov_len;
	}
	return length;
}

size_t snt__sim_frame_write(const struct snt__soft_packet *packet,
			    uint16_t identification, uint8_t *bytes)
{
	const struct snt__soft_path *path = packet->path;
	bool ipv4 = is_ipv4(path->target);
	size_t ip = ipv4 ? IPV4_SIZE : IPV6_SIZE, at = ip + UDP_SIZE;
	struct snt__icrc_ipv4 variable = { identification, SNT__ICRC_DONT_FRAGMENT };
	struct iovec payload = { .iov_base = bytes + at + packet->header_length };
	struct snt__icrc_flow flow;

	memcpy(bytes + at, packet->header, packet->header_length);
	at += packet->header_length;
	payload.iov_len = write_payload(packet, bytes + at);
	at += payload.iov_len;
	snt__icrc_flow_init(&flow, path->source, path->target, path->source_port,
			    SNT__WIRE_PORT);
	/* What is sealed is what was copied, should it be written to meanwhile. */
	at += snt__icrc_seal(&flow, variable, packet->header, packet->header_length,
			     &payload, 1, bytes + at);
	if (ipv4)
		write_ipv4(path, at, identification, bytes);
	else
		write_ipv6(path, at, bytes);
	write_udp(path, at - ip, bytes + ip);
	return at;
}

static void map_ipv4(uint8_t address[16], const uint8_t *ipv4)
{
	memcpy(address, mapped, sizeof(mapped));
	memcpy(address + 12, ipv4, 4);
}

static int read_ipv4(const uint8_t *bytes, size_t length, struct snt__soft_path *path,
		     struct snt__icrc_ipv4 *variable)
{
	if (length < IPV4_SIZE || bytes[0] != 0x45 || snt__get16(bytes + 2) != length ||
	    bytes[9] != UDP || ipv4_checksum(bytes))
		return -EBADMSG;
	variable->identification = snt__get16(bytes + 4);
	variable->fragment = snt__get16(bytes + 6);
	path->traffic_class = bytes[1];
	path->hop_limit = bytes[8];
	map_ipv4(path->source, bytes + 12);
	map_ipv4(path->target, bytes + 16);
	return 0;
}

static int read_ipv6(const uint8_t *bytes, size_t length, struct snt__soft_path *path)
{
	if (length < IPV6_SIZE || bytes[0] >> 4 != 6 ||
	    snt__get16(bytes + 4) != length - IPV6_SIZE || bytes[6] != UDP)
		return -EBADMSG;
	path->traffic_class = snt__get16(bytes) >> 4 & 0xff;
	path->flow_label = (bytes[1] & 15) << 16 | snt__get16(bytes + 2);
	path->hop_limit = bytes[7];
	memcpy(path->source, bytes + 8, 16);
	memcpy(path->target, bytes + 24, 16);
	return 0;
}

int snt__sim_frame_read(const uint8_t *bytes, size_t length,
			struct snt__sim_frame *frame_out)
{
	struct snt__sim_frame frame = { 0 };
	struct snt__icrc_ipv4 variable = { 0 };
	bool ipv4 = length && bytes[0] >> 4 == 4;
	size_t ip = ipv4 ? IPV4_SIZE : IPV6_SIZE;
	struct snt__icrc_flow flow;

	if (ipv4 ? read_ipv4(bytes, length, &frame.path, &variable)
		 : read_ipv6(bytes, length, &frame.path))
		return -EBADMSG;
	if (length < ip + UDP_SIZE || snt__get16(bytes + ip + 2) != SNT__WIRE_PORT ||
	    snt__get16(bytes + ip + 4) != length - ip || snt__get16(bytes + ip + 6))
		return -EBADMSG;
	frame.path.source_port = snt__get16(bytes + ip);
	snt__icrc_flow_init(&flow, frame.path.source, frame.path.target,
			    frame.path.source_port, SNT__WIRE_PORT);
	frame.bytes = bytes + ip + UDP_SIZE;
	frame.length = length - ip - UDP_SIZE;
	if (snt__icrc_check(&flow, variable, frame.bytes, frame.length))
		return -EBADMSG;
	frame.length -= SNT__ICRC_SIZE;
	*frame_out = frame;
	return 0;
}
