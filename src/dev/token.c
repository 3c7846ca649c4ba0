/* SPDX-License-Identifier: MIT */
/*
 * Tokens as bytes. All numbers big-endian:
 *
 *	0  u8   version, 1
 *	1  u8   key count, 1 to SNT_DEVICES_MAX
 *	2  u16  access, SNT_ACCESS_REMOTE_* bits
 *	4  u32  zero
 *	8  u64  address
 *	16 u64  length
 *	24 u32  key, one per device
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "dev/mem.h"
#include "util/err.h"

#define VERSION	    1
#define HEADER_SIZE 24

struct header {
	uint8_t version;
	uint8_t key_count;
	uint16_t access;
	uint32_t zero;
	uint64_t addr;
	uint64_t length;
};

_Static_assert(sizeof(struct header) == HEADER_SIZE, "no padding on the wire");
_Static_assert(SNT_TOKEN_PACKED_MAX == HEADER_SIZE + 4 * SNT_DEVICES_MAX,
	       "as promised");

#define ACCESS_REMOTE \
	(SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC)

/* The fault of a token, or NULL. */
static const char *find_fault(const struct snt_token *token)
{
	if (!token->key_count || token->key_count > SNT_DEVICES_MAX)
		return "its number of keys is out of range";
	if (!token->length)
		return "it is empty";
	if (token->length - 1 > UINT64_MAX - token->addr)
		return "its range reaches beyond the end of the address space";
	if (!token->access || token->access & ~ACCESS_REMOTE)
		return "its access bits make no sense";
	return NULL;
}

ssize_t snt_token_pack(const struct snt_token *token, void *buffer, size_t size)
{
	const char *fault = find_fault(token);
	struct header header;
	uint8_t *at = buffer;
	size_t need;

	if (fault)
		return snt__fail(EINVAL, "token cannot be packed: %s", fault);
	need = HEADER_SIZE + 4 * token->key_count;
	if (size < need)
		return snt__fail(ENOSPC,
				 "a packed token with %u keys needs %zu bytes, not %zu",
				 token->key_count, need, size);
	header = (struct header){
		.version = VERSION,
		.key_count = token->key_count,
		.access = htobe16(token->access),
		.addr = htobe64(token->addr),
		.length = htobe64(token->length),
	};
	memcpy(at, &header, HEADER_SIZE);
	for (unsigned i = 0; i < token->key_count; i++) {
		uint32_t key = htobe32(token->key[i]);

		memcpy(at + HEADER_SIZE + 4 * i, &key, sizeof(key));
	}
	return need;
}

int snt_token_unpack(const void *buffer, size_t size, struct snt_token *token_out)
{
	const uint8_t *at = buffer;
	struct snt_token token = { 0 };
	struct header header;
	const char *fault;

	if (!size)
		return snt__fail(EBADMSG, "packed token is empty");
	if (at[0] != VERSION)
		return snt__fail(EPROTONOSUPPORT,
				 "packed token has version %u; this library reads %d",
				 at[0], VERSION);
	if (size < HEADER_SIZE)
		return snt__fail(EBADMSG, "packed token is cut off after %zu bytes",
				 size);
	memcpy(&header, at, HEADER_SIZE);
	token.key_count = header.key_count;
	token.access = be16toh(header.access);
	token.addr = be64toh(header.addr);
	token.length = be64toh(header.length);
	fault = header.zero ? "a reserved field is set" : find_fault(&token);
	if (fault)
		return snt__fail(EBADMSG, "packed token refused: %s", fault);
	if (size != HEADER_SIZE + 4 * (size_t)token.key_count)
		return snt__fail(EBADMSG,
				 "packed token with %u keys has %zu bytes, not %zu",
				 token.key_count, size,
				 HEADER_SIZE + 4 * (size_t)token.key_count);
	for (unsigned i = 0; i < token.key_count; i++) {
		memcpy(&token.key[i], at + HEADER_SIZE + 4 * i, sizeof(token.key[i]));
		token.key[i] = be32toh(token.key[i]);
	}
	*token_out = token;
	return 0;
}

int snt_token_target(const struct snt_token *token, unsigned device, uint64_t offset,
		     uint64_t length, unsigned access, uint64_t *addr_out,
		     uint32_t *key_out)
{
	if (device >= token->key_count || device >= SNT_DEVICES_MAX)
		return snt__fail(EINVAL,
				 "token has no key for device %u: its owner has %u "
				 "devices",
				 device, token->key_count);
	if (!access || access & ~ACCESS_REMOTE || access & (access - 1))
		return snt__fail(EINVAL,
				 "access 0x%x is not one SNT_ACCESS_REMOTE_* right",
				 access);
	if (!(token->access & access))
		return snt__fail(EACCES, "token grants access 0x%x, but 0x%x is needed",
				 token->access, access);
	if (!snt__range_holds(token->length, offset, length))
		return snt__fail(ERANGE,
				 "%" PRIu64 " bytes at offset %" PRIu64
				 " reach outside of a token of %" PRIu64,
				 length, offset, token->length);
	*addr_out = token->addr + offset;
	*key_out = token->key[device];
	return 0;
}
