"""stub"""


def draw(file):
    return None
