"""linked_only: the link inputs of another target, without its headers, defines and include paths."""

def _linked_only_impl(ctx):
    return [CcInfo(linking_context = ctx.attr.dep[CcInfo].linking_context)]

linked_only = rule(
    implementation = _linked_only_impl,
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
)
