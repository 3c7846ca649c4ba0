/* SPDX-License-Identifier: MIT */
/* Tokens as bytes: what goes round, and that nothing else is let in. */
#include "lib/test.h"

#include <sennit/mem.h>

static struct snt_token sample(unsigned key_count)
{
	struct snt_token token = {
		.addr = 0x7f0011223344,
		.length = UINT64_C(5) << 30,
		.access = SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_WRITE,
		.key_count = key_count,
	};

	for (unsigned i = 0; i < key_count; i++)
		token.key[i] = 0xabcd0000 + i;
	return token;
}

static void every_key_count_goes_round(void **state)
{
	(void)state;
	for (unsigned count = 1; count <= SNT_DEVICES_MAX; count++) {
		struct snt_token token = sample(count), back;
		uint8_t packed[SNT_TOKEN_PACKED_MAX];
		ssize_t size = snt_token_pack(&token, packed, sizeof(packed));

		assert_int_equal(size, 24 + 4 * count);
		assert_success(snt_token_unpack(packed, size, &back));
		assert_memory_equal(&token, &back, sizeof(token));
	}
}

/* The layout is a promise to peers of other versions and byte orders. */
static void packed_bytes_are_fixed(void **state)
{
	static const uint8_t expected[] = {
		1,    2,    0,	  6,	0,    0, 0,    0,    0, 0,    0x7f,
		0x00, 0x11, 0x22, 0x33, 0x44, 0, 0,    0,    1, 0x40, 0,
		0,    0,    0xab, 0xcd, 0,    0, 0xab, 0xcd, 0, 1,
	};
	struct snt_token token = sample(2);
	uint8_t packed[SNT_TOKEN_PACKED_MAX];

	(void)state;
	assert_int_equal(snt_token_pack(&token, packed, sizeof(packed)),
			 sizeof(expected));
	assert_memory_equal(packed, expected, sizeof(expected));
}

static void wrong_sizes_are_refused(void **state)
{
	struct snt_token token = sample(3), back;
	uint8_t packed[SNT_TOKEN_PACKED_MAX + 4] = { 0 };
	ssize_t size = snt_token_pack(&token, packed, sizeof(packed));

	(void)state;
	for (size_t cut = 0; cut < sizeof(packed); cut++) {
		/* An exact copy, so that reading past it is seen. */
		uint8_t *copy = malloc(cut ? cut : 1);

		memcpy(copy, packed, cut);
		if (cut == (size_t)size)
			assert_success(snt_token_unpack(copy, cut, &back));
		else
			assert_error(snt_token_unpack(copy, cut, &back), EBADMSG,
				     "token");
		free(copy);
	}
	assert_error(snt_token_pack(&token, packed, size - 1), ENOSPC,
		     "needs 36 bytes");
}

static void unpack_refuses(size_t byte, uint8_t value, int err, const char *phrase)
{
	struct snt_token token = sample(2), back = { .addr = 1 };
	uint8_t packed[SNT_TOKEN_PACKED_MAX];
	ssize_t size = snt_token_pack(&token, packed, sizeof(packed));

	packed[byte] = value;
	assert_error(snt_token_unpack(packed, size, &back), err, phrase);
	assert_int_equal(back.addr, 1);
}

static void malformed_tokens_are_refused(void **state)
{
	(void)state;
	unpack_refuses(0, 0, EPROTONOSUPPORT, "version 0");
	unpack_refuses(0, 2, EPROTONOSUPPORT, "version 2");
	unpack_refuses(1, 0, EBADMSG, "number of keys");
	unpack_refuses(1, 1, EBADMSG, "has 32 bytes, not 28");
	unpack_refuses(1, SNT_DEVICES_MAX + 1, EBADMSG, "number of keys");
	unpack_refuses(1, 255, EBADMSG, "number of keys");
	unpack_refuses(2, 0x80, EBADMSG, "access bits");
	unpack_refuses(3, 0, EBADMSG, "access bits");
	unpack_refuses(3, SNT_ACCESS_LOCAL_WRITE, EBADMSG, "access bits");
	unpack_refuses(5, 1, EBADMSG, "reserved");
}

static void ranges_must_exist(void **state)
{
	struct snt_token token = sample(1);
	uint8_t packed[SNT_TOKEN_PACKED_MAX];

	(void)state;
	token.length = 0;
	assert_error(snt_token_pack(&token, packed, sizeof(packed)), EINVAL, "empty");
	token.addr = UINT64_MAX;
	token.length = 1;
	assert_success(snt_token_pack(&token, packed, sizeof(packed)));
	token.length = 2;
	assert_error(snt_token_pack(&token, packed, sizeof(packed)), EINVAL, "beyond");
	token.length = UINT64_MAX;
	assert_error(snt_token_pack(&token, packed, sizeof(packed)), EINVAL, "beyond");
}

static void target_stays_inside(void **state)
{
	struct snt_token token = sample(2);
	uint64_t addr = 0;
	uint32_t key = 0;

	(void)state;
	token.length = 100;
	assert_success(snt_token_target(&token, 1, 60, 40, SNT_ACCESS_REMOTE_READ,
					&addr, &key));
	assert_int_equal(addr, token.addr + 60);
	assert_int_equal(key, 0xabcd0001);
	assert_success(snt_token_target(&token, 0, 100, 0, SNT_ACCESS_REMOTE_WRITE,
					&addr, &key));
	assert_error(snt_token_target(&token, 0, 60, 41, SNT_ACCESS_REMOTE_READ, &addr,
				      &key),
		     ERANGE, "41 bytes at offset 60 reach outside of a token of 100");
	assert_error(snt_token_target(&token, 0, 101, 0, SNT_ACCESS_REMOTE_READ, &addr,
				      &key),
		     ERANGE, "outside");
	assert_error(snt_token_target(&token, 0, UINT64_MAX, 2, SNT_ACCESS_REMOTE_READ,
				      &addr, &key),
		     ERANGE, "outside");
	assert_error(snt_token_target(&token, 0, 1, UINT64_MAX, SNT_ACCESS_REMOTE_READ,
				      &addr, &key),
		     ERANGE, "outside");
	assert_error(snt_token_target(&token, 2, 0, 1, SNT_ACCESS_REMOTE_READ, &addr,
				      &key),
		     EINVAL, "no key for device 2");
	assert_error(snt_token_target(&token, 0, 0, 8, SNT_ACCESS_REMOTE_ATOMIC, &addr,
				      &key),
		     EACCES, "grants access");
	assert_error(snt_token_target(&token, 0, 0, 8, 0, &addr, &key), EINVAL,
		     "not one");
	assert_error(snt_token_target(&token, 0, 0, 8, token.access, &addr, &key),
		     EINVAL, "not one");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_count_goes_round),
		cmocka_unit_test(packed_bytes_are_fixed),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(malformed_tokens_are_refused),
		cmocka_unit_test(ranges_must_exist),
		cmocka_unit_test(target_stays_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
