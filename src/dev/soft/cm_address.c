/* SPDX-License-Identifier: MIT */
#include "dev/soft/cm_address.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "util/err.h"

static const uint8_t any[16];
static const uint8_t any_ipv4[16] = { [10] = 0xff, [11] = 0xff };

bool snt__soft_cm_is_ipv4(const uint8_t gid[16])
{
	return memcmp(gid, any_ipv4, 12) == 0;
}

bool snt__soft_cm_is_unspecified(const uint8_t gid[16])
{
	return memcmp(gid, any, 16) == 0 || memcmp(gid, any_ipv4, 16) == 0;
}

bool snt__soft_cm_covers(const uint8_t many[16], const uint8_t one[16])
{
	return memcmp(many, any, 16) == 0 || memcmp(many, one, 16) == 0 ||
	       (memcmp(many, any_ipv4, 16) == 0 && snt__soft_cm_is_ipv4(one));
}

int snt__soft_cm_likeness(const uint8_t a[16], const uint8_t b[16])
{
	int bits = 0;

	if (snt__soft_cm_is_ipv4(a) != snt__soft_cm_is_ipv4(b))
		return -1;
	while (bits < 128 && !((a[bits / 8] ^ b[bits / 8]) & 0x80 >> bits % 8))
		bits++;
	return bits;
}

int snt__soft_cm_read_address(const struct sockaddr *address, uint8_t gid_out[16],
			      uint16_t *port_out)
{
	struct sockaddr_in four;
	struct sockaddr_in6 six;

	if (address->sa_family == AF_INET) {
		memcpy(&four, address, sizeof(four));
		memcpy(gid_out, any_ipv4, 12);
		memcpy(gid_out + 12, &four.sin_addr, 4);
		*port_out = ntohs(four.sin_port);
		return 0;
	}
	if (address->sa_family == AF_INET6) {
		memcpy(&six, address, sizeof(six));
		memcpy(gid_out, &six.sin6_addr, 16);
		*port_out = ntohs(six.sin6_port);
		return 0;
	}
	return snt__fail(EAFNOSUPPORT, "the address is neither IPv4 nor IPv6");
}

void snt__soft_cm_write_address(const uint8_t gid[16], uint16_t port,
				struct sockaddr_storage *address_out)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	memset(address_out, 0, sizeof(*address_out));
	if (snt__soft_cm_is_ipv4(gid)) {
		memcpy(&four.sin_addr, gid + 12, 4);
		memcpy(address_out, &four, sizeof(four));
	} else {
		memcpy(&six.sin6_addr, gid, 16);
		memcpy(address_out, &six, sizeof(six));
	}
}
