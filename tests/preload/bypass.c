/* SPDX-License-Identifier: MIT */
/* Which devices a program of sennit's sees, for symbols.py: prints the kind of each. */
#include <stdio.h>
#include <sennit/sennit.h>

int main(void)
{
	static const char *const kinds[] = {
		[SNT_DEVICE_VERBS] = "verbs",
		[SNT_DEVICE_SOFT] = "soft",
		[SNT_DEVICE_ADOPTED] = "adopted",
	};
	struct snt_ctx *ctx = NULL;

	if (snt_ctx_create(NULL, &ctx)) {
		fprintf(stderr, "%s\n", snt_err_text());
		return 1;
	}
	for (unsigned i = 0; i < snt_ctx_device_count(ctx); i++) {
		struct snt_device_info info = { .size = sizeof(info) };

		snt_device_query(snt_ctx_device(ctx, i), &info);
		printf("%s %s\n", kinds[info.kind], info.name);
	}
	return snt_ctx_destroy(ctx) ? 1 : 0;
}
