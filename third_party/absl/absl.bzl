"""Abseil, as installed (Debian: 20220623 LTS)."""

load("//third_party/pkg_config:pkg_config.bzl", "pkg_config_repository")

def absl_repository(name):
    pkg_config_repository(
        name = name,
        debian_package = "libabsl-dev",
        targets = {
            "flags": ["absl_flags"],
            "flags_config": ["absl_flags_config"],
            "flags_parse": ["absl_flags_parse"],
            "flags_reflection": ["absl_flags_reflection"],
            "flags_usage": ["absl_flags_usage"],
            "span": ["absl_span"],
            "status": ["absl_status"],
            "statusor": ["absl_statusor"],
            "strings": ["absl_strings", "absl_str_format"],
            "symbolize": ["absl_symbolize"],
            "synchronization": ["absl_synchronization"],
            "time": ["absl_time"],
        },
        deps = {"status": ["@rankwise//third_party/absl:status_macros"]},
    )
